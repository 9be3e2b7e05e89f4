package intake

import (
	"bytes"
	"fmt"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// Gone says that the same request was accepted, ended and purged: nothing is done,
// and its result is no longer known.
type Gone struct {
	StatusRef string      // of the operation that was purged
	State     entry.State // that it ended in: Delivered or Discarded
}

// Error says what became of it.
func (e *Gone) Error() string {
	return "the operation that has this key was " + string(e.State) + " and has been purged since: nothing is sent"
}

// purged answers for a key that has a tombstone.
func (p *Prepared) purged(tx *ledger.Tx) error {
	var gone Gone
	var sum []byte
	s := &p.op.Scope
	err := tx.One(`SELECT status_ref, state, request_sha256 FROM outbox_tombstone
		WHERE tenant_id = ? AND subject_id = ? AND tool_name = ? AND idempotency_key = ?`,
		s.Tenant, s.Subject, s.Tool, s.Key).Scan(&gone.StatusRef, &gone.State, &sum)
	switch {
	case err != nil:
		return fmt.Errorf("read tombstone: %w", err)
	case !bytes.Equal(sum, p.op.RequestSum[:]):
		return &Conflict{Fields: []string{"request_sha256"}}
	}
	return &gone
}

// WasPurged reports whether a status_ref is that of a purged operation.
func WasPurged(q ledger.Querier, ref string) (yes bool, err error) {
	err = q.One(`SELECT EXISTS (SELECT 1 FROM outbox_tombstone WHERE status_ref = ?)`, ref).Scan(&yes)
	if err != nil {
		return false, fmt.Errorf("look for a tombstone: %w", err)
	}
	return yes, nil
}
