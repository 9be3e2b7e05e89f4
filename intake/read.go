package intake

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/ledger"
)

// ErrNotFound says that there is no such operation.
var ErrNotFound = errors.New("no such operation")

// The revisions in force are those of the last review that accepted some.
const columns = `id, status_ref, tenant_id, subject_id, tool_name, idempotency_key, arguments, request_sha256,
	effect, wire_key, input_revision, output_revision, effect_revision, handler_revision, producer_revision,
	policy_revision, provider, api_family, adapter_revision, response_id, call_id, not_before, session_id,
	COALESCE(turn, 0), traceparent, parent, accepted_at,
	(SELECT v.revisions FROM outbox_review AS v WHERE v.operation_id = outbox_operation.id AND v.revisions IS NOT NULL
		ORDER BY v.id DESC LIMIT 1)`

// Load reads the operations with these ids in one statement; one that does not
// exist is missing in the answer. What is read is what stands in the file:
// guard finds out whether it is what was accepted.
func Load(q ledger.Querier, ids []int64) (map[int64]*contract.Operation, error) {
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, fmt.Errorf("encode ids: %w", err)
	}
	ops, err := read(q, `SELECT `+columns+` FROM outbox_operation
		WHERE id IN (SELECT value FROM json_each(?))`, string(list))
	if err != nil {
		return nil, err
	}
	byID := make(map[int64]*contract.Operation, len(ops))
	for _, op := range ops {
		byID[op.ID] = op
	}
	return byID, nil
}

// After reads up to n operations that were accepted after the one with id, in
// order.
func After(q ledger.Querier, id int64, n int) ([]*contract.Operation, error) {
	return read(q, `SELECT `+columns+` FROM outbox_operation WHERE id > ? ORDER BY id LIMIT ?`, id, n)
}

// ByRef reads the operation of a status_ref, or ErrNotFound.
func ByRef(q ledger.Querier, ref string) (*contract.Operation, error) {
	return only(read(q, `SELECT `+columns+` FROM outbox_operation WHERE status_ref = ?`, ref))
}

// ByScope reads the operation of a scope and key, or ErrNotFound.
func ByScope(q ledger.Querier, s contract.Scope) (*contract.Operation, error) {
	return only(read(q, `SELECT `+columns+` FROM outbox_operation
		WHERE tenant_id = ? AND subject_id = ? AND tool_name = ? AND idempotency_key = ?`,
		s.Tenant, s.Subject, s.Tool, s.Key))
}

func only(ops []*contract.Operation, err error) (*contract.Operation, error) {
	if err != nil {
		return nil, err
	}
	if len(ops) == 0 {
		return nil, ErrNotFound
	}
	return ops[0], nil
}

func read(q ledger.Querier, query string, args ...any) ([]*contract.Operation, error) {
	var ops []*contract.Operation
	err := q.Each(func(r *ledger.Row) error {
		op := new(contract.Operation)
		if err := scan(r, op); err != nil {
			return err
		}
		ops = append(ops, op)
		return nil
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read operations: %w", err)
	}
	return ops, nil
}

func scan(r *ledger.Row, op *contract.Operation) error {
	var sum []byte
	var accepted string
	err := r.Scan(&op.ID, &op.StatusRef, &op.Scope.Tenant, &op.Scope.Subject, &op.Scope.Tool, &op.Scope.Key,
		&op.Arguments, &sum, &op.Effect, &op.WireKey,
		&op.Original.Input, &op.Original.Output, &op.Original.Effect,
		&op.Original.Handler, &op.Original.Producer, &op.Original.Policy,
		&op.Origin.Provider, &op.Origin.APIFamily, &op.Origin.AdapterRevision,
		&op.Origin.ResponseID, &op.Origin.CallID,
		&op.NotBefore, &op.Session, &op.Turn, &op.Trace, &op.Parent, &op.AcceptedAt, &accepted)
	if op.Revisions = op.Original; accepted != "" {
		op.Revisions = contract.DecodeRevisions(accepted)
	}
	if len(sum) == len(op.RequestSum) {
		op.RequestSum = [32]byte(sum) // of another length it stays zero and matches nothing
	}
	return err
}
