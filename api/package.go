package api

import (
	"fmt"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// seal makes the package of a delivered operation, of the same snapshot.
func (op *operation) seal(v *ledger.View) error {
	if op.state != entry.Delivered {
		return nil
	}
	stored, err := intake.ByRef(v, op.ref)
	if err != nil {
		return fmt.Errorf("read operation: %w", err)
	}
	var sum, binding []byte
	var reference string
	err = v.One(`SELECT result_sha256, call_binding_sha256, reference FROM outbox_receipt WHERE operation_id = ?`, op.id).
		Scan(&sum, &binding, &reference)
	if err != nil {
		return fmt.Errorf("read receipt: %w", err)
	}
	op.sealed = contract.NewPackage(stored, op.result, sum, binding, reference)
	return nil
}

// intact recomputes what the digests of a delivered operation bind, before any of it
// is shown.
func (op *operation) intact() error {
	if op.sealed == nil {
		return nil
	}
	if !contract.IsCanonical(op.sealed.Arguments) || !contract.IsCanonical(op.sealed.Result) || len(op.sealed.Verify()) > 0 {
		return errAltered
	}
	return nil
}
