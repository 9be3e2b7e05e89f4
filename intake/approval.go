package intake

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// What can be wrong with the approval of a stored operation.
var (
	ErrNoApproval      = errors.New("no approval was given")
	ErrApprovalAltered = errors.New("approval digest")
)

// Approve consumes an approval that is given now to an operation that waits, and
// lets it go: its round begins. entry.ErrStale says that it does not wait (any
// more): of two that approve at a time one wins.
func Approve(tx *ledger.Tx, op *contract.Operation, rule contract.ApprovalRule, id, approver string) error {
	excused, err := excusedFor(tx, op.Scope.Tool)
	if err != nil {
		return err
	}
	if err := entry.Release(tx, op.ID, later(tx.Now(), op.NotBefore), excused); err != nil {
		return err
	}
	now := time.UnixMilli(tx.Now().UnixMilli()).UTC()
	a := contract.Approval{ID: id, Approver: approver, ApprovedAt: now}
	if rule.ExpiresAfter > 0 {
		a.ExpiresAt = now.Add(rule.ExpiresAfter)
	}
	_, err = consume(tx, op, a)
	return err
}

// consume stores an approval with the operation that uses it up; once is false
// where another one has.
func consume(tx *ledger.Tx, op *contract.Operation, a contract.Approval) (once bool, err error) {
	sum := a.Digest(op)
	n, err := tx.Exec(`INSERT INTO outbox_approval
		(operation_id, approval_id, approver, approved_at, expires_at, approval_sha256, consumed_at)
		VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (approval_id) DO NOTHING`,
		op.ID, a.ID, a.Approver, a.ApprovedAt, a.ExpiresAt, sum[:], tx.Now())
	if err != nil {
		return false, fmt.Errorf("insert approval: %w", err)
	}
	return n == 1, nil
}

func excusedFor(tx *ledger.Tx, tool string) (time.Duration, error) {
	var ms int64
	err := tx.One(`SELECT excused_ms + IIF(paused, MAX(0, ? - paused_at), 0) FROM outbox_tool WHERE tool_name = ?`,
		tx.Now(), tool).Scan(&ms)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("look at tool: %w", err)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// ApprovalOf reads the approval under which an operation may have its effect, the
// last one, and recomputes its digest: ErrNoApproval, ErrApprovalAltered.
func ApprovalOf(q ledger.Querier, op *contract.Operation) (a contract.Approval, err error) {
	var sum []byte
	err = q.One(`SELECT approval_id, approver, approved_at, expires_at, approval_sha256 FROM outbox_approval
		WHERE operation_id = ? ORDER BY id DESC LIMIT 1`, op.ID).Scan(&a.ID, &a.Approver, &a.ApprovedAt, &a.ExpiresAt, &sum)
	if errors.Is(err, sql.ErrNoRows) {
		return a, ErrNoApproval
	}
	if err != nil {
		return a, fmt.Errorf("read approval: %w", err)
	}
	if want := a.Digest(op); !bytes.Equal(sum, want[:]) {
		return a, ErrApprovalAltered
	}
	return a, nil
}

// forgetApprovals drops those of operations that are purged.
func forgetApprovals(tx *ledger.Tx, gone []entry.Ended) error {
	list, err := json.Marshal(gone)
	if err != nil {
		return fmt.Errorf("encode ids: %w", err)
	}
	_, err = tx.Exec(`DELETE FROM outbox_approval WHERE operation_id IN (SELECT json_extract(value, '$.ID') FROM json_each(?))`, string(list))
	if err != nil {
		return fmt.Errorf("forget approvals: %w", err)
	}
	return nil
}

// approval checks one that comes with a request.
func (c *checks) approval(tool *contract.Tool, r *Request) {
	a := r.Approval
	if a == nil {
		return
	}
	c.add("", contract.CheckName("approval/approval_id", a.ID))
	c.add("", contract.CheckName("approval/approver_id", a.Approver))
	if a.Approver == r.Scope.Subject {
		c.refuse("approval/approver_id", "is the subject", "somebody else than who asks for the effect")
	}
	if tool != nil && !tool.Approval.Needed() {
		c.refuse("approval", "is given", "nothing: the tool wants no approval")
	}
	a.ApprovedAt, a.ExpiresAt = c.instant("approval/approved_at", a.ApprovedAt), c.instant("approval/expires_at", a.ExpiresAt)
	if !a.ExpiresAt.After(a.ApprovedAt) {
		c.refuse("approval/expires_at", "is not after approved_at", "a later instant")
	}
}

func (c *checks) instant(path string, t time.Time) time.Time {
	ms := t.UnixMilli()
	if t.IsZero() || ms < firstInstant || ms > lastInstant {
		c.refuse(path, "is absent or out of range", "an instant of the years 1970 to 9999")
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// begin is how the entry of a new operation starts: it waits where the tool wants an
// approval that does not come with the request.
func (p *Prepared) begin(tx *ledger.Tx, excused time.Duration) (b entry.Begin, s entry.State, err error) {
	b, s = entry.Begin{Due: later(tx.Now(), p.op.NotBefore), Excused: excused}, entry.Pending
	switch {
	case p.approval != nil && !p.approval.Valid(tx.Now()):
		return b, s, invalidApproval("does not hold now", "an approval of which approved_at <= now < expires_at")
	case p.approval == nil && p.rule.Needed():
		b, s = entry.Begin{Waiting: true, Excused: excused}, entry.Waiting
		if p.rule.ExpiresAfter > 0 {
			b.Due = tx.Now().Add(p.rule.ExpiresAfter)
		}
	}
	return b, s, nil
}

// used stores the approval that came with the request, for the operation id.
func (p *Prepared) used(tx *ledger.Tx, id int64) error {
	if p.approval == nil {
		return nil
	}
	op := p.op
	op.ID = id
	once, err := consume(tx, &op, *p.approval)
	if err == nil && !once {
		err = invalidApproval("was used for another operation", "an approval that was given for this one")
	}
	return err
}

func invalidApproval(what, allowed string) error {
	return &Invalid{Code: InputInvalid, Problems: []contract.InputError{{Path: "approval", What: what, Allowed: allowed}}}
}
