package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

func (s *API) submit(c *call) (reply, error) {
	wait, err := c.wait()
	if err != nil {
		return reply{}, err
	}
	request, err := c.caseOf()
	if err != nil {
		return reply{}, err
	}
	a, at, err := s.accept(c, request)
	if err != nil {
		return reply{}, err
	}
	if a.New {
		s.d.Poller.Wake()
	}
	if a.New && wait == 0 && a.State == entry.Pending {
		return submitted(operation{
			ref: a.StatusRef, tool: request.Scope.Tool, key: request.Scope.Key, state: a.State, dueAt: at,
		}, true)
	}
	op, err := s.await(c, a.StatusRef, wait)
	if err != nil {
		return reply{}, err
	}
	return submitted(op, a.New)
}

// counted tells the code of each answer.
func (s *API) counted(fn func(*call) (reply, error)) func(*call) (reply, error) {
	if s.d.Submitted == nil {
		return fn
	}
	return func(c *call) (reply, error) {
		out, err := fn(c)
		switch a, answered := out.body.(Answer); {
		case err != nil:
			s.d.Submitted(problemOf(err).Code)
		case answered:
			s.d.Submitted(a.Code)
		}
		return out, err
	}
}

func submitted(op operation, fresh bool) (reply, error) {
	v := judge(Submitted, op.state, fresh)
	a := op.answer(v)
	if op.state == entry.Delivered && fresh {
		a.Delivery = string(op.how) // this very call brought it about
	}
	return reply{v.http, a}, nil
}

// caseOf reads a case from the body.
func (c *call) caseOf() (r intake.Request, err error) {
	var got received
	if err := c.body(&got); err != nil {
		return r, err
	}
	body, err := got.asCase()
	if err != nil {
		return r, err
	}
	return c.request(body)
}

// request is what the case asks for, within what the caller may ask for.
func (c *call) request(b *Case) (r intake.Request, err error) {
	who := b.Principal
	if who == nil {
		only, one := c.access.only(c.peer)
		if !one {
			return r, invalid(InputError{"principal", "is absent",
				"for whom it is: --tenant and --subject of the command, or principal with tenant_id and subject_id in the case " +
					"(only a uid that may submit for one tenant and subject alone leaves them out)"})
		}
		who = &only
	}
	if err := names(who); err != nil {
		return r, err
	}
	if !c.access.covers(c.peer, who.Tenant, who.Subject, b.Call.Tool) {
		return r, problem("AUTHORIZATION_DENIED")
	}
	r = intake.Request{
		Scope:     contract.Scope{Tenant: who.Tenant, Subject: who.Subject, Tool: b.Call.Tool, Key: b.IdempotencyKey},
		Arguments: b.Call.Arguments, NotBefore: b.NotBefore, Session: b.Session, Turn: b.Turn, Trace: b.Traceparent,
	}
	if o := b.Origin; o != nil {
		r.Origin = contract.Origin(*o)
	}
	r.Approval, err = c.approval(b)
	return r, err
}

// names are looked at before it is asked whether the caller may use them.
func names(p *Principal) error {
	if err := contract.CheckName("tenant_id", p.Tenant); err != nil {
		return err
	}
	return contract.CheckName("subject_id", p.Subject)
}

// accept returns once the operation is durable. at is when a new one is due.
func (s *API) accept(c *call, r intake.Request) (a intake.Accepted, at time.Time, err error) {
	p, err := intake.Prepare(s.d.Poller.Work().Registry, r)
	if err != nil {
		return a, at, refusal(err)
	}
	op := p.Operation()
	if err := s.permit(c, &op); err != nil {
		return a, at, err
	}
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	if err := s.still(c, &op); err != nil {
		return a, at, err
	}
	err = s.d.Ledger.Write(ctx, func(tx *ledger.Tx) (err error) {
		a, err = p.Accept(tx)
		at = tx.Now()
		return err
	})
	if err != nil {
		return a, at, refusal(err)
	}
	if r.NotBefore.After(at) {
		at = r.NotBefore.Add(time.Millisecond - 1) // intake rounds up
	}
	return a, at.UTC().Truncate(time.Millisecond), nil
}

// refusal is the problem of a request that intake refuses; other errors stay.
func refusal(err error) error {
	if e, ok := errors.AsType[*intake.Conflict](err); ok {
		p := problem(intake.KeyConflict)
		p.Fields = e.Fields
		return p
	}
	if e, ok := errors.AsType[*intake.Gone](err); ok {
		p := problem(intake.KeyPurged)
		p.Detail = e.Error()
		return p
	}
	if e, ok := errors.AsType[*intake.Invalid](err); ok {
		p := problem(e.Code)
		for _, in := range e.Problems {
			p.Errors = append(p.Errors, InputError{in.Path, in.What, in.Allowed})
		}
		return p
	}
	if errors.Is(err, ledger.ErrReplaced) {
		p := problem("DATABASE_REPLACED")
		p.Detail += ": whether this was accepted is not known; submit it again with the same key"
		return p
	}
	return fmt.Errorf("accept operation: %w", err)
}
