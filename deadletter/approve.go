package deadletter

import (
	"fmt"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// Word is a person's word about an operation that waits for an approval.
type Word struct {
	Refused bool
	UID     int
	Reason  string
}

// Record keeps the word beside the reviews. from is the waiting entry, to what it
// became.
func (w Word) Record(tx *ledger.Tx, from entry.Due, to entry.State) error {
	action := "approve"
	if w.Refused {
		action = "refuse"
	}
	_, err := tx.Exec(`INSERT INTO outbox_review (operation_id, action, uid, reason, state_before, state_after, round, at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, from.ID, action, w.UID, w.Reason, from.State, to, from.Round, tx.Now())
	if err != nil {
		return fmt.Errorf("record approval: %w", err)
	}
	return nil
}
