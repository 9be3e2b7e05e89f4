package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// callerRoles are the roles with which a caller acts: a principal's own, whoever
// else may submit for the same scope. An operator acts with those of the scope, as
// the worker does. Where a program brought roles of its own they hold for everybody.
type callerRoles struct {
	access *Access
	peer   peer
	all    guard.Roles
}

// Roles implements guard.Roles.
func (r callerRoles) Roles(ctx context.Context, s contract.Scope) ([]string, error) {
	if _, configured := r.all.(guard.Configured); configured && !r.access.operator(r.peer) {
		return guard.Configured(r.access.principals[r.peer.UID].list).Roles(ctx, s)
	}
	if r.all == nil {
		return nil, nil
	}
	return r.all.Roles(ctx, s)
}

// asks is the question about an operation, from the caller, with the rules of this
// moment.
func (s *API) asks(c *call, op *contract.Operation) (*guard.Set, guard.Question) {
	work := s.d.Poller.Work()
	q := s.d.Poller.Question(handler.Call{
		StatusRef: op.StatusRef, Tool: op.Scope.Tool, Tenant: op.Scope.Tenant, Subject: op.Scope.Subject,
		Key: op.Scope.Key, WireKey: op.WireKey, Arguments: op.Arguments, Traceparent: op.Trace,
	})
	q.Roles = callerRoles{s.access.Load(), c.peer, work.Roles}
	return work.Guards[op.Scope.Tool], q
}

// permit asks the tool's guards before an accept: who may not is told nothing of
// what is stored, and what exists already need not make sense a second time.
func (s *API) permit(c *call, op *contract.Operation) error {
	set, q := s.asks(c, op)
	if set == nil {
		return nil
	}
	if tool, ok := s.d.Poller.Work().Registry.Lookup(op.Scope.Tool); ok {
		c.allow(s.limits.accept + tool.GuardTime)
	}
	if err := set.Accept(c.Context(), q, handler.Authorize); err != nil {
		return refusedBy(err)
	}
	known, err := s.known(c, op.Scope)
	if err != nil || known {
		return err
	}
	return refusedBy(set.Accept(c.Context(), q, handler.Validate))
}

// still asks once more, right in front of the accept's transaction, what is known
// here: may the caller submit, and has it the roles. A reload may have come between.
func (s *API) still(c *call, op *contract.Operation) error {
	if !s.access.Load().covers(c.peer, op.Scope.Tenant, op.Scope.Subject, op.Scope.Tool) {
		return problem("AUTHORIZATION_DENIED")
	}
	set, q := s.asks(c, op)
	return refusedBy(set.Static(c.Context(), q))
}

// sees reports whether the caller may see what became of an operation: it may submit
// for its scope, and has a role that the tool asks for, now.
func (s *API) sees(c *call, scope contract.Scope) bool {
	if !s.reaches(c, scope) {
		return false
	}
	if s.access.Load().operator(c.peer) {
		return true
	}
	set, q := s.asks(c, &contract.Operation{Scope: scope})
	return set.Static(c.Context(), q) == nil
}

// reaches is sees without the roles: the operation lies within the caller's scopes.
func (s *API) reaches(c *call, scope contract.Scope) bool {
	return s.access.Load().covers(c.peer, scope.Tenant, scope.Subject, scope.Tool)
}

// mayAsk asks the guards that authorize, all of them, before a caller has the
// downstream asked.
func (s *API) mayAsk(c *call, op operation) error {
	stored, err := s.stored(c, op.ref)
	if err != nil {
		return err
	}
	set, q := s.asks(c, stored)
	return refusedBy(set.Accept(c.Context(), q, handler.Authorize))
}

func (s *API) stored(c *call, ref string) (op *contract.Operation, err error) {
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	err = s.d.Ledger.Read(ctx, func(v *ledger.View) (err error) {
		op, err = intake.ByRef(v, ref)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read operation: %w", err)
	}
	return op, nil
}

func (s *API) known(c *call, scope contract.Scope) (known bool, err error) {
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	err = s.d.Ledger.Read(ctx, func(v *ledger.View) error {
		_, err := intake.ByScope(v, scope)
		known = err == nil
		if errors.Is(err, intake.ErrNotFound) {
			return nil
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look for the key: %w", err)
	}
	return known, nil
}

// refusedBy is the problem of a guard's refusal; nil stays nil.
func refusedBy(err error) error {
	r, ok := errors.AsType[*guard.Refusal](err)
	if !ok {
		return err
	}
	code := "AUTHORIZATION_DENIED"
	switch r.Reason {
	case guard.Failed:
		code = "PRECONDITION_FAILED"
	case guard.Drift:
		code = "CONTRACT_DRIFT"
	case guard.Altered:
		code = "STORE_CONTRACT_ERROR"
	}
	p := problem(code)
	p.Detail += ": " + r.What
	return p
}
