package audit

import (
	"fmt"
	"slices"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// ReviewInvalid says that a decision of a person could not have been taken.
const ReviewInvalid = "REVIEW_INVALID"

// reviews checks that each could have been made of the entry that it names.
func (a *auditor) reviews() error {
	err := a.q.Each(func(r *ledger.Row) error {
		var id, uid, round, of int64
		var ref string
		var before, after entry.State
		if err := r.Scan(&id, &ref, &uid, &before, &after, &round, &of); err != nil {
			return err
		}
		find := func(what string) { a.report.find(ReviewInvalid, ref, fmt.Sprintf("review %d %s", id, what)) }
		if !slices.Contains(entry.States, before) || !slices.Contains(entry.States, after) {
			find("names no state")
		}
		if round < 1 || round > of {
			find("is of a round that never began")
		}
		if uid < 0 || uid > maxUID {
			find("is of nobody")
		}
		return nil
	}, `SELECT r.id, o.status_ref, r.uid, r.state_before, r.state_after, r.round, e.round FROM outbox_review AS r
		JOIN outbox_operation AS o ON o.id = r.operation_id JOIN outbox_entry AS e ON e.operation_id = o.id`)
	if err != nil {
		return fmt.Errorf("check reviews: %w", err)
	}
	return nil
}

const maxUID = 1<<32 - 1
