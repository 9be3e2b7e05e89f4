package entry

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

const (
	leasedLateSQL = `SELECT operation_id FROM outbox_entry INDEXED BY outbox_entry_due
		WHERE due_at IS NOT NULL AND token IS NOT NULL AND over_at > ?1 AND last_sent_at <= ?2`
	unknownLateSQL = `SELECT operation_id FROM outbox_entry INDEXED BY outbox_entry_kept
		WHERE state = 'unknown' AND over_at > ?1 AND last_sent_at <= ?2`
	laterSQL = `UPDATE outbox_entry SET over_at = over_at + ?2
		WHERE operation_id IN (SELECT value FROM json_each(?1)) AND last_sent_at <= ?3
		AND (state = 'sending' OR state = 'unknown')`
)

// StillRunning lists the entries that were sent at the latest at sent and whose
// attempts were not known to be over by then.
func StillRunning(q ledger.Querier, then, sent time.Time) (ids []int64, err error) {
	seen := map[int64]bool{} // what is being asked about is in both lists
	for _, query := range []string{leasedLateSQL, unknownLateSQL} {
		err := q.Each(func(r *ledger.Row) error {
			var id int64
			err := r.Scan(&id)
			if !seen[id] {
				seen[id], ids = true, append(ids, id)
			}
			return err
		}, query, then, sent)
		if err != nil {
			return nil, fmt.Errorf("list attempts that may run: %w", err)
		}
	}
	return ids, nil
}

// Later corrects when attempts are known to be over after the wall clock was set
// forward by that much. What was sent after sent was sent by the new clock and
// stays as it is.
func Later(tx *ledger.Tx, ids []int64, by time.Duration, sent time.Time) error {
	list, err := json.Marshal(ids)
	if err != nil {
		return fmt.Errorf("encode ids: %w", err)
	}
	if _, err := tx.Exec(laterSQL, string(list), by.Milliseconds(), sent); err != nil {
		return fmt.Errorf("move ends of attempts along: %w", err)
	}
	return nil
}
