package entry

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/chaos/point"
	"github.com/outboxd/outboxd/ledger"
)

// Ended is an entry that needs nobody any more.
type Ended struct {
	ID    int64
	State State // Delivered or Discarded
}

// errEnough ends the reading of rows.
var errEnough = errors.New("enough")

// Until says how old an entry must be before it may be forgotten: it reached its
// state before that instant.
type Until struct{ Delivered, Discarded time.Time }

const (
	// pageSize is how many entries one statement of OldestEnded looks at.
	pageSize = 5000

	endedSQL = `SELECT operation_id, state, changed_at < MAX(?2, ?3),
		IIF(state = 'delivered', changed_at < ?2, state = 'discarded' AND changed_at < ?3)
			AND (over_at IS NULL OR over_at <= ?4)
		FROM outbox_entry WHERE operation_id > ?1 ORDER BY operation_id LIMIT 5000`

	forgetSQL = `DELETE FROM outbox_entry WHERE operation_id IN (SELECT value FROM json_each(?1))
		AND (state = 'delivered' AND changed_at < ?2 OR state = 'discarded' AND changed_at < ?3)
		AND (over_at IS NULL OR over_at <= ?4) RETURNING operation_id, state`
)

// OldestEnded lists up to n entries behind the one with id after that may be
// forgotten, in the order of their ids. next is where to go on; done says that
// nothing behind it is old enough: it looks no further than a page of 5000 entries
// that all changed lately.
func OldestEnded(q ledger.Querier, after int64, until Until, now time.Time, n int) (ids []int64, next int64, done bool, err error) {
	seen, old := 0, false
	err = q.Each(func(r *ledger.Row) error {
		var id int64
		var state State
		var aged, may bool
		if err := r.Scan(&id, &state, &aged, &may); err != nil {
			return err
		}
		if len(ids) == n {
			return errEnough
		}
		seen, old, next = seen+1, old || aged, id
		if may {
			ids = append(ids, id)
		}
		return nil
	}, endedSQL, after, until.Delivered, until.Discarded, now)
	if errors.Is(err, errEnough) {
		return ids, next, false, nil
	}
	if err != nil {
		return nil, after, false, fmt.Errorf("list entries that have ended: %w", err)
	}
	return ids, next, seen < pageSize || !old, nil
}

// Forget deletes those of the entries that may be forgotten, with their evidence
// and receipts, and returns them. Whatever waits, runs, is unknown or dead stays,
// and so does what an attempt may still be running for.
func Forget(tx *ledger.Tx, ids []int64, until Until) (gone []Ended, err error) {
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, fmt.Errorf("encode ids: %w", err)
	}
	err = tx.Each(func(r *ledger.Row) error {
		var e Ended
		err := r.Scan(&e.ID, &e.State)
		gone = append(gone, e)
		return err
	}, forgetSQL, string(list), until.Delivered, until.Discarded, tx.Now())
	if err != nil {
		return nil, fmt.Errorf("forget entries: %w", err)
	}
	if list, err = json.Marshal(gone); err != nil {
		return nil, fmt.Errorf("encode entries: %w", err)
	}
	for _, query := range []string{
		`DELETE FROM outbox_attempt WHERE operation_id IN (SELECT json_extract(value, '$.ID') FROM json_each(?))`,
		`DELETE FROM outbox_receipt WHERE operation_id IN (SELECT json_extract(value, '$.ID') FROM json_each(?))`,
	} {
		if _, err := tx.Exec(query, string(list)); err != nil {
			return nil, fmt.Errorf("forget evidence: %w", err)
		}
	}
	if len(gone) > 0 {
		tx.For(point.Purge)
	}
	return gone, nil
}
