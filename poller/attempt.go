package poller

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
)

// errCutOff ends handlers at the drain limit.
var errCutOff = errors.New("drain limit reached")

// start gives the claim a slot and a goroutine. Only Run's goroutine calls it.
func (p *Poller) start(work context.Context, c claim) {
	p.slots.start(c.tool.Name, c.held.ID, c.due.Suspect && c.held.State != entry.Unknown)
	p.attempts.Go(func() {
		defer func() { p.finished <- finish{c.tool.Name, c.held.ID} }()
		p.hold(work, c)
	})
}

// hold works on the claim while the keeper renews its lease.
func (p *Poller) hold(work context.Context, c claim) {
	ctx, cancel := context.WithCancelCause(work)
	defer cancel(nil)
	p.keeper.Hold(c.held, cancel)
	defer p.keeper.Drop(c.held)
	if c.held.State == entry.Unknown {
		p.question(ctx, c)
		return
	}
	p.attempt(ctx, c)
}

// attempt: guard, mark, call, settle.
func (p *Poller) attempt(ctx context.Context, c claim) {
	if p.stopping.Load() {
		p.undo(c)
		return
	}
	if err := guard.Check(c.op, c.tool); err != nil {
		p.settle(c, refused(err))
		return
	}
	if c.held.State == entry.Claimed {
		held, err := p.mark(ctx, c)
		switch {
		case errors.Is(err, entry.ErrStale):
			p.stale(c)
			return
		case err != nil:
			p.undo(c)
			return
		}
		c.held = held
	}
	began := time.Now()
	out := p.call(ctx, c)
	if context.Cause(ctx) != nil && ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		p.log.Debug("attempt ended early", zap.NamedError("cause", context.Cause(ctx)), zap.String("status_ref", c.op.StatusRef))
	}
	p.settle(c, p.observed(ctx, out))
	p.o.Observer.Attempt(c.tool.Name, string(out.Observed), time.Since(began))
}

// mark commits the send marker before the first byte may leave.
func (p *Poller) mark(ctx context.Context, c claim) (held entry.Held, err error) {
	err = p.l.Write(ctx, func(tx *ledger.Tx) (err error) {
		held, err = entry.Hand(tx, c.held, over(tx.Now(), c.tool))
		return err
	})
	return held, err
}

func (p *Poller) call(ctx context.Context, c claim) handler.Outcome {
	ctx, cancel := context.WithTimeout(ctx, c.tool.Timeout)
	defer cancel()
	return c.work.Handlers[c.tool.Name].Handler.Execute(ctx, request(c, handler.Execute))
}

func request(c claim, purpose handler.Purpose) handler.Call {
	return handler.Call{
		Purpose: purpose, StatusRef: c.op.StatusRef, Tool: c.op.Scope.Tool, Tenant: c.op.Scope.Tenant,
		Subject: c.op.Scope.Subject, Key: c.op.Scope.Key, WireKey: c.op.WireKey, Attempt: c.held.Attempt,
		Token: c.held.Token, Arguments: c.op.Arguments, Traceparent: c.op.Trace,
	}
}

// observation is what one attempt was seen to come to.
type observation struct {
	handler.Outcome
	event entry.Event // when it is not the observation that decides
	why   string      // the guard's reason
}

func (p *Poller) observed(ctx context.Context, out handler.Outcome) observation {
	o := observation{Outcome: out}
	uncertain := out.Observed == handler.MayHaveHappened || out.Observed == handler.InProgress
	if uncertain && errors.Is(context.Cause(ctx), errCutOff) {
		o.event = entry.CutOff
		p.cut.Add(1)
	}
	return o
}

func refused(err error) observation {
	o := observation{event: entry.GuardRefuses, why: "guard_failed"}
	o.Observed, o.Code, o.Answered = handler.NotSent, o.why, true
	var r *guard.Refusal
	if errors.As(err, &r) {
		o.why, o.Code, o.Excerpt = r.Reason, r.Reason, r.What
	}
	return o
}

// CutOff is the cause with which the context of work ends at the drain limit.
func CutOff() error { return errCutOff }
