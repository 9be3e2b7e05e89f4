package projection

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/outboxd/outboxd/chaos/point"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
)

// Project is the built-in tool: it writes what became of an operation to the turn
// that asked, or sets it aside, in the transaction that settles it.
func Project(tx *ledger.Tx, c handler.Call) handler.Outcome {
	var e event
	if err := json.Unmarshal(c.Arguments, &e); err != nil || e.id() != c.Key {
		return refuse("event_invalid", "the event is not what its key names")
	}
	p := projection{event: e, call: c, content: Content(c.Arguments)}
	row, err := p.run(tx)
	if no, ok := errors.AsType[*refusal](err); ok {
		return refuse(no.code, no.why)
	}
	if err != nil {
		return handler.Undone(err)
	}
	result, err := json.Marshal(row)
	if err != nil {
		return handler.Undone(err)
	}
	tx.For(point.Project)
	return handler.Outcome{Observed: handler.Succeeded, Code: "committed", Result: result}
}

// Content is the digest of an event that the history keeps with its decision:
// arguments are those of the operation that carried it.
func Content(arguments []byte) [32]byte {
	return sha256.Sum256(append([]byte("outboxd.projection.v1\x00"), arguments...))
}

// refusal: the event can never be projected.
type refusal struct{ code, why string }

func (r *refusal) Error() string { return r.code + ": " + r.why }

func refuse(code, why string) handler.Outcome {
	return handler.Outcome{Observed: handler.Rejected, Code: code, Excerpt: why, Answered: true}
}

// projection is one run of the tool.
type projection struct {
	event
	call    handler.Call
	content [32]byte
	tool    string // of the operation that ended
	result  []byte
}

// decided is the recorded decision, as the receipt has it too.
type decided struct {
	Row      int64  `json:"row"`
	Decision string `json:"decision"`
	Source   int64  `json:"source_turn"`
	Target   int64  `json:"target_turn,omitzero"`
	Current  int64  `json:"current_turn"`
	Open     bool   `json:"source_open"`
}

func (p *projection) run(tx *ledger.Tx) (decided, error) {
	if err := p.source(tx); err != nil {
		return decided{}, err
	}
	s, err := find(tx, p.call.Tenant, p.call.Subject, p.Session)
	if errors.Is(err, ErrNotFound) {
		return decided{}, &refusal{"session_missing", "there is no such session"}
	}
	if err != nil {
		return decided{}, err
	}
	if d, known, err := p.before(tx, s); known || err != nil {
		return d, err
	}
	var open bool
	err = tx.One(`SELECT closed_at IS NULL FROM outbox_turn WHERE session = ? AND turn = ?`, s.ID, p.Turn).Scan(&open)
	if errors.Is(err, sql.ErrNoRows) {
		return decided{}, &refusal{"turn_missing", "the session has had no such turn"}
	}
	if err != nil {
		return decided{}, err
	}
	d := decided{Source: p.Turn, Current: s.Turn, Open: open}
	d.Target, d.Decision = decide(p.Turn, s.Turn, open)
	return p.record(tx, s, d)
}

// source reads what the event tells of, and refuses an event that does not fit it.
func (p *projection) source(tx *ledger.Tx) error {
	var parent, session string
	var turn int64
	var sum []byte
	err := tx.One(`SELECT f.parent, o.tool_name, o.session_id, COALESCE(o.turn, 0), r.result, r.result_sha256
		FROM outbox_operation AS f JOIN outbox_operation AS o ON o.status_ref = f.parent
			AND o.tenant_id = f.tenant_id AND o.subject_id = f.subject_id
		LEFT JOIN outbox_receipt AS r ON r.operation_id = o.id
		WHERE f.status_ref = ?`, p.call.StatusRef).Scan(&parent, &p.tool, &session, &turn, &p.result, &sum)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return &refusal{"operation_missing", "the operation that it tells of is gone"}
	case err != nil:
		return err
	case parent != p.Operation || session != p.Session || turn != p.Turn:
		return &refusal{"event_substituted", "the event tells of another operation, session or turn than it follows from"}
	case p.Result == "":
		p.result = nil // a receipt that came after the end that is told of is an event of its own
		return nil
	}
	digest := contract.ResultDigest(p.result)
	if p.Result != hex.EncodeToString(sum) || p.Result != hex.EncodeToString(digest[:]) {
		return &refusal{"event_substituted", "the result is not the one that the event tells of"}
	}
	return nil
}

// before answers for an event that was decided: the same one again changes
// nothing, another content under its id is refused.
func (p *projection) before(tx *ledger.Tx, s Session) (d decided, known bool, err error) {
	var content []byte
	err = tx.One(`SELECT id, decision, source_turn, COALESCE(target_turn, 0), current_turn, source_open, content_sha256
		FROM outbox_history WHERE session = ? AND event = ?`, s.ID, p.call.Key).
		Scan(&d.Row, &d.Decision, &d.Source, &d.Target, &d.Current, &d.Open, &content)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return d, false, nil
	case err != nil:
		return d, false, err
	case string(content) != string(p.content[:]):
		return d, true, &refusal{"event_substituted", "the event was decided with another content"}
	}
	return d, true, nil
}

func (p *projection) record(tx *ledger.Tx, s Session, d decided) (decided, error) {
	var target any
	if d.Target != 0 {
		target = d.Target
	}
	id, inserted, err := tx.Insert(`INSERT INTO outbox_history (session, event, decision, source_turn, target_turn,
		current_turn, source_open, status_ref, tool_name, state, reason, result, content_sha256, at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULLIF(?, ''), ?, ?, ?)`, s.ID, p.call.Key, d.Decision, d.Source, target,
		d.Current, d.Open, p.Operation, p.tool, p.State, p.Reason, nullText(p.result), p.content[:], tx.Now())
	if err == nil && !inserted {
		err = ledger.ErrIgnored
	}
	if err != nil {
		return d, fmt.Errorf("record decision: %w", err)
	}
	d.Row = id
	return d, nil
}

func nullText(b []byte) any {
	if b == nil {
		return nil
	}
	return string(b)
}
