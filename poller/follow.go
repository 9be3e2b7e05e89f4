package poller

import (
	"fmt"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// succeed records a success and enqueues what follows from it, in one commit.
func (p *Poller) succeed(tx *ledger.Tx, c claim, r entry.Receipt, follow []handler.FollowUp) error {
	if err := entry.Deliver(tx, c.held, r); err != nil {
		return err
	}
	if len(follow) > 0 {
		p.Wake()
	}
	for i, f := range follow {
		if _, err := intake.Follow(tx, p.Work().Registry, followUp(c.op, f, i)); err != nil {
			return fmt.Errorf("enqueue follow-up: %w", err)
		}
	}
	return nil
}

func followUp(parent *contract.Operation, f handler.FollowUp, place int) intake.Request {
	r := intake.Request{
		Scope:     contract.Scope{Tenant: parent.Scope.Tenant, Subject: parent.Scope.Subject, Tool: f.Tool, Key: f.Key},
		Arguments: f.Arguments, Trace: parent.Trace, Parent: parent.StatusRef,
	}
	if r.Scope.Key == "" {
		r.Scope.Key = fmt.Sprintf("%s/%d", parent.StatusRef, place)
	}
	if f.InSession {
		r.Session, r.Turn = parent.Session, parent.Turn
	}
	return r
}
