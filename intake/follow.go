package intake

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/ledger"
)

// builtIn begins the names of tools that only follow-ups reach.
const builtIn = "outbox."

// Follow enqueues what follows from an operation, in the transaction that settles
// it. A request that cannot be accepted becomes a row in outbox_refused, in the same
// commit: the settle does not fail for it. The error is one of the file.
func Follow(tx *ledger.Tx, reg *contract.Registry, r Request) (Accepted, error) {
	p, err := Prepare(reg, r)
	if invalid, ok := errors.AsType[*Invalid](err); ok {
		return Accepted{}, refuseFollowUp(tx, r, invalid.Code, invalid.Error())
	}
	if err != nil {
		return Accepted{}, err
	}
	var a Accepted
	err = tx.Try(func() (err error) {
		a, err = p.Accept(tx)
		return err
	})
	code, message, refused := refusalOf(err)
	if refused {
		return Accepted{}, refuseFollowUp(tx, r, code, message)
	}
	return a, err
}

// refusalOf is why a valid request is not accepted, where the transaction goes on.
func refusalOf(err error) (code, message string, yes bool) {
	if conflict, ok := errors.AsType[*Conflict](err); ok {
		return KeyConflict, conflict.Error(), true
	}
	if invalid, ok := errors.AsType[*Invalid](err); ok {
		return invalid.Code, invalid.Error(), true
	}
	if gone, ok := errors.AsType[*Gone](err); ok {
		return KeyPurged, gone.Error(), true
	}
	switch {
	case errors.Is(err, errNoEntry):
		return KeyConflict, err.Error(), true
	case survivable(err):
		return StoreRefused, storeMessage(err), true
	}
	return "", "", false
}

func refuseFollowUp(tx *ledger.Tx, r Request, code, message string) error {
	var turn any
	if r.Turn != 0 {
		turn = r.Turn
	}
	n, err := tx.Exec(`INSERT INTO outbox_refused (tenant_id, subject_id, tool_name, idempotency_key, arguments,
		not_before, session_id, turn, traceparent, parent, code, message, refused_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, r.Scope.Tenant, r.Scope.Subject, r.Scope.Tool, r.Scope.Key,
		string(r.Arguments), r.NotBefore, null(r.Session), turn, null(r.Trace), null(r.Parent), code, capped(message), tx.Now())
	if err == nil && n == 0 {
		err = ledger.ErrIgnored
	}
	if err != nil {
		return fmt.Errorf("refuse follow-up: %w", err)
	}
	return nil
}

// parent: nobody from outside asks for a built-in tool, and nothing but a status_ref
// is a parent.
func (c *checks) parent(tool, parent string) {
	if parent == "" && strings.HasPrefix(tool, builtIn) {
		c.refuse("tool_name", "is a built-in tool, which takes no requests", "the name of a configured tool")
	}
}

// inSession finds out whether the session exists and has had the turn.
func (p *Prepared) inSession(tx *ledger.Tx) error {
	if p.op.Turn == 0 {
		return nil
	}
	var turn int64
	err := tx.One(`SELECT turn FROM outbox_session WHERE tenant_id = ? AND subject_id = ? AND session_id = ?`,
		p.op.Scope.Tenant, p.op.Scope.Subject, p.op.Session).Scan(&turn)
	if errors.Is(err, sql.ErrNoRows) {
		return &Invalid{InputInvalid, []contract.InputError{{Path: "session", What: "there is no such session of this tenant and subject",
			Allowed: "one that was opened, or a session without a turn, which is only a label"}}}
	}
	if err != nil {
		return fmt.Errorf("read session: %w", err)
	}
	if p.op.Turn > turn {
		return &Invalid{InputInvalid, []contract.InputError{{Path: "turn", What: "the session has had no such turn",
			Allowed: fmt.Sprintf("1 to %d", turn)}}}
	}
	return nil
}
