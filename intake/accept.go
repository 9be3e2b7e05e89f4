package intake

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// Accepted is where an operation stands after Accept.
type Accepted struct {
	ID        int64
	StatusRef string
	State     entry.State // of a new one Pending, or Waiting for an approval
	New       bool        // false: a repetition, and nothing was changed
}

// errNoEntry: the file was altered; audit names the operation.
var errNoEntry = errors.New("the operation that has this key has no entry")

// A new operation costs this statement, entry.Open's, and one look at its key and tool.
// (RETURNING would join two of them, but makes a table to return from.)
const insertSQL = `INSERT INTO outbox_operation
	(status_ref, tenant_id, subject_id, tool_name, idempotency_key, arguments, request_sha256, effect, wire_key,
	input_revision, output_revision, effect_revision, handler_revision, producer_revision, policy_revision,
	provider, api_family, adapter_revision, response_id, call_id, not_before, session_id, turn, traceparent,
	parent, accepted_at)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (tenant_id, subject_id, tool_name, idempotency_key) DO NOTHING`

// Accept stores a new operation with its entry. Where the scope and key exist,
// the stored row decides: an equal request is answered with its present state,
// any other with a *Conflict. Where the key has a tombstone, an equal request is
// answered with a *Gone and any other with a *Conflict. It runs inside Write and may run more than once.
func (p *Prepared) Accept(tx *ledger.Tx) (Accepted, error) {
	excused, gone, err := p.look(tx)
	if err != nil {
		return Accepted{}, err
	}
	if gone {
		return Accepted{}, p.purged(tx)
	}
	args := append(p.args[:len(p.args):len(p.args)], tx.Now())
	id, inserted, err := tx.Insert(insertSQL, args...)
	if err != nil {
		return Accepted{}, fmt.Errorf("insert operation: %w", err)
	}
	if !inserted {
		return p.again(tx)
	}
	if err := p.inSession(tx); err != nil {
		return Accepted{}, err
	}
	begin, state, err := p.begin(tx, excused)
	if err != nil {
		return Accepted{}, err
	}
	if err := p.used(tx, id); err != nil {
		return Accepted{}, err
	}
	if err := entry.Open(tx, id, p.op.Scope.Tool, begin); err != nil {
		return Accepted{}, err
	}
	return Accepted{ID: id, StatusRef: p.op.StatusRef, State: state, New: true}, nil
}

// lookSQL finds nothing in outbox_tool for a tool without a past.
const lookSQL = `SELECT
	COALESCE((SELECT excused_ms + IIF(paused, MAX(0, ?5 - paused_at), 0) FROM outbox_tool WHERE tool_name = ?3), 0),
	EXISTS (SELECT 1 FROM outbox_tombstone
		WHERE tenant_id = ?1 AND subject_id = ?2 AND tool_name = ?3 AND idempotency_key = ?4)`

// look finds the time for which the tool's operations have not aged so far (what a
// pause lasts is added to the total at its end), and whether the key has been purged.
func (p *Prepared) look(tx *ledger.Tx) (excused time.Duration, gone bool, err error) {
	var ms int64
	s := &p.op.Scope
	err = tx.One(lookSQL, s.Tenant, s.Subject, s.Tool, s.Key, tx.Now()).Scan(&ms, &gone)
	if err != nil {
		return 0, false, fmt.Errorf("look at tool and key: %w", err)
	}
	return time.Duration(ms) * time.Millisecond, gone, nil
}

// again answers for an operation that exists: the row in the file is the
// authority, whatever the caller remembers.
func (p *Prepared) again(tx *ledger.Tx) (Accepted, error) {
	stored, err := ByScope(tx, p.op.Scope)
	if errors.Is(err, ErrNotFound) {
		return Accepted{}, fmt.Errorf("insert operation: %w", ledger.ErrIgnored)
	}
	if err != nil {
		return Accepted{}, fmt.Errorf("read operation again: %w", err)
	}
	if fields := differ(stored, &p.op); len(fields) > 0 {
		return Accepted{}, &Conflict{Fields: fields}
	}
	a := Accepted{ID: stored.ID, StatusRef: stored.StatusRef}
	err = tx.One(`SELECT state FROM outbox_entry WHERE operation_id = ?`, stored.ID).Scan(&a.State)
	if errors.Is(err, sql.ErrNoRows) {
		return Accepted{}, errNoEntry
	}
	if err != nil {
		return Accepted{}, fmt.Errorf("read state: %w", err)
	}
	return a, nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// row gives the arguments of insertSQL but for the last, accepted_at.
func row(op *contract.Operation) []any {
	args := make([]any, 0, 26)
	args = append(args, op.StatusRef, op.Scope.Tenant, op.Scope.Subject, op.Scope.Tool, op.Scope.Key,
		string(op.Arguments), op.RequestSum[:], string(op.Effect), op.WireKey)
	for _, f := range revisionFields(&op.Original) {
		args = append(args, *f.value)
	}
	for _, f := range originFields(&op.Origin) {
		args = append(args, null(*f.value))
	}
	var turn any
	if op.Turn != 0 {
		turn = op.Turn
	}
	return append(args, op.NotBefore, null(op.Session), turn, null(op.Trace), null(op.Parent))
}

func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}
