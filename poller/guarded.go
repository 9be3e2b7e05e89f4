package poller

import (
	"context"
	"errors"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// allowed asks whether the effect may be produced, right in front of it and outside
// of any transaction: is it still what was accepted, and do the tool's guards agree,
// with the roles of this moment.
func (p *Poller) allowed(ctx context.Context, c claim) error {
	if err := guard.Check(c.op, c.tool); err != nil {
		return err
	}
	if err := p.approved(ctx, c); err != nil {
		return err
	}
	return c.work.Guards[c.tool.Name].Effect(ctx, p.Question(request(c, "")))
}

// errReapprove: the approval was given and is no longer valid, and the tool wants it
// to be at the effect.
var errReapprove = errors.New("the approval does not hold any more")

// approved recomputes the approval's digest from the stored rows.
func (p *Poller) approved(ctx context.Context, c claim) error {
	if !c.tool.Approval.Needed() {
		return nil
	}
	var a contract.Approval
	err := p.l.Read(ctx, func(v *ledger.View) (err error) {
		a, err = intake.ApprovalOf(v, c.op)
		return err
	})
	switch {
	case errors.Is(err, intake.ErrNoApproval), errors.Is(err, intake.ErrApprovalAltered):
		return &guard.Refusal{Reason: guard.Altered, What: err.Error()}
	case err != nil:
		return &guard.Refusal{Reason: guard.Denied, What: "the approval could not be read"}
	case c.tool.Approval.Mode == contract.ApprovalAtEffect && !a.Valid(p.l.Now()):
		return errReapprove
	}
	return nil
}

// Question is what guards are asked about a call.
func (p *Poller) Question(c handler.Call) guard.Question {
	return guard.Question{Call: c, File: p.l, Roles: p.Work().Roles}
}

// outdated: the claim was made with a snapshot that a reload has replaced meanwhile,
// under which the operation may have been accepted.
func (p *Poller) outdated(c claim, err error) bool {
	r, ok := errors.AsType[*guard.Refusal](err)
	return ok && r.Reason == guard.Drift && c.work != p.Work()
}
