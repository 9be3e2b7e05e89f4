package entry

import (
	"fmt"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

// Retrying is an entry that nobody holds and that is due at a later time: a failed
// attempt is to be repeated, or a question to be put.
type Retrying struct {
	ID                          int64
	State                       State
	DueAt, Since                time.Time // Since: when DueAt was decided
	Attempts, Failures, Queries int
}

const retryingSQL = `SELECT operation_id, state, due_at, changed_at, attempts, failures, queries FROM outbox_entry
	WHERE tool_name = ?1 AND due_at >= ?2 AND (due_at, operation_id) > (?2, ?3) AND token IS NULL
	AND (state = 'unknown' OR state = 'pending' AND failures > 0) ORDER BY due_at, operation_id LIMIT +?4`

// AllRetrying lists up to n entries of a tool that wait, in the order in which they
// are due, from behind the entry after on; a zero ID stands for its DueAt alone.
func AllRetrying(q ledger.Querier, tool string, after Retrying, n int) (all []Retrying, err error) {
	err = q.Each(func(r *ledger.Row) error {
		var w Retrying
		err := r.Scan(&w.ID, &w.State, &w.DueAt, &w.Since, &w.Attempts, &w.Failures, &w.Queries)
		all = append(all, w)
		return err
	}, retryingSQL, tool, after.DueAt, after.ID, n)
	if err != nil {
		return nil, fmt.Errorf("list entries that wait: %w", err)
	}
	return all, nil
}

const rescheduleSQL = `UPDATE outbox_entry SET due_at = ?1
	WHERE operation_id = ?2 AND due_at = ?3 AND changed_at = ?4 AND state = ?5 AND token IS NULL`

// Reschedule has an entry that waits due at another time, unless it has moved since
// it was read.
func Reschedule(tx *ledger.Tx, w Retrying, at time.Time) error {
	if _, err := tx.Exec(rescheduleSQL, at, w.ID, w.DueAt, w.Since, w.State); err != nil {
		return fmt.Errorf("reschedule entry: %w", err)
	}
	return nil
}
