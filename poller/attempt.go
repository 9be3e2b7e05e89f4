package poller

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/outboxd/outboxd/chaos/point"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
)

// ErrCutOff is the cause with which the context of work ends at the drain limit.
var ErrCutOff = errors.New("drain limit reached")

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
	if err := p.allowed(ctx, c); err != nil {
		if ctx.Err() != nil || p.outdated(c, err) {
			p.undo(c) // the guards were not heard out, or not those of today
			return
		}
		p.o.Observer.Attempt(c.tool.Name, string(entry.Blocked), 0)
		p.settle(c, refused(err))
		return
	}
	if c.held.State == entry.Claimed {
		err := p.mark(ctx, &c)
		switch {
		case errors.Is(err, entry.ErrStale):
			p.stale(c)
			return
		case err != nil:
			p.unmarked(ctx, c, err)
			return
		}
	}
	if pair := c.work.Handlers[c.tool.Name]; pair.Local != nil || pair.BuiltIn != nil {
		p.apply(c, pair)
		return
	}
	p.send(ctx, c)
}

// mark commits the send marker before the first byte may leave. The entry is taken
// to be marked only once that is committed: a batch that the disk did not take has
// marked it for nothing.
func (p *Poller) mark(ctx context.Context, c *claim) error {
	marked := c.held
	err := p.l.Write(ctx, func(tx *ledger.Tx) (err error) {
		c.since = time.Now()
		marked, err = entry.Hand(tx, c.held, over(tx.Now(), c.tool))
		return err
	})
	if err == nil {
		c.held = marked
	}
	return err
}

// unmarked gives back an entry whose mark was not committed. Where it is the
// application that refuses it, that takes a while, since the entry is due at once.
func (p *Poller) unmarked(ctx context.Context, c claim, err error) {
	if ledger.Refusal(err) != "" {
		p.log.Warn("nothing sent: the mark is refused", p.fields(c, zap.String("error", describe(err)))...)
		select {
		case <-ctx.Done():
		case <-time.After(settleRefused):
		}
	}
	p.undo(c)
}

// send calls the handler and settles what it observed. The time limit counts from
// here, but nothing may leave after the attempt is taken to be over, which counts
// from the mark, however long the process stood still in between.
func (p *Poller) send(ctx context.Context, c claim) {
	end := time.Now().Add(c.tool.Timeout)
	if last := c.since.Add(c.tool.Timeout + commitSlack + c.tool.GuardTime); last.Before(end) {
		end = last
	}
	limited, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	if limited.Err() != nil {
		p.log.Warn("nothing sent: too late, or no longer ours", p.fields(c, zap.NamedError("cause", context.Cause(limited)))...)
		p.undo(c)
		return
	}
	began := time.Now()
	out := p.call(limited, c)
	p.o.Observer.Attempt(c.tool.Name, string(out.Observed), time.Since(began))
	cut := errors.Is(context.Cause(limited), ErrCutOff)
	if cut && out.Observed == handler.NotSent {
		p.undo(c)
		return
	}
	p.settle(c, p.observed(cut, out))
	p.misconfigured(c, out)
	p.breaker(c, unwell(out), out.Code)
}

// call is the one place where a handler is run. A panic of a Handler is an
// outcome: it may have happened.
func (p *Poller) call(ctx context.Context, c claim) (out handler.Outcome) {
	defer func() {
		if v := recover(); v != nil {
			out = handler.Outcome{Observed: handler.MayHaveHappened, Code: codePanic, Answered: true, Err: panicked(v)}
		}
		out = out.Normal()
		p.complain(c, out.Code, out.Err)
	}()
	point.Hit(point.SendBefore)
	defer point.Hit(point.SendAnswered)
	return c.work.Handlers[c.tool.Name].Handler.Execute(ctx, request(c, handler.Execute))
}

// The codes of handlers that someone must mend.
const (
	codePanic     = "panic"
	codeAbandoned = "abandoned"
)

// maxStack keeps a log line below 8 KiB.
const maxStack = 3 << 10

func panicked(v any) error {
	text, stack := fmt.Sprint(v), debug.Stack()
	return fmt.Errorf("handler panicked: %.512s\n%s", text, stack[:min(len(stack), maxStack)])
}

// complain logs what a handler says for the log only.
func (p *Poller) complain(c claim, code string, err error) {
	if err == nil {
		return
	}
	level := zapcore.DebugLevel
	if code == codePanic || code == codeAbandoned {
		level = zapcore.ErrorLevel
	}
	p.log.Log(level, "handler returned an error", p.fields(c, zap.String("code", code), zap.Error(err))...)
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

func (p *Poller) observed(cut bool, out handler.Outcome) observation {
	o := observation{Outcome: out}
	uncertain := out.Observed == handler.MayHaveHappened || out.Observed == handler.InProgress
	if uncertain && cut {
		o.event = entry.CutOff
		p.cut.Add(1)
	}
	return o
}

func refused(err error) observation {
	if errors.Is(err, errReapprove) {
		o := observation{event: entry.Reapproval}
		o.Observed, o.Code, o.Answered = handler.NotSent, "reapproval_required", true
		return o
	}
	o := observation{event: entry.GuardRefuses, why: "guard_failed"}
	o.Observed, o.Code, o.Answered = handler.NotSent, o.why, true
	var r *guard.Refusal
	if errors.As(err, &r) {
		o.why, o.Code, o.Excerpt = r.Reason, r.Reason, r.What
	}
	return o
}
