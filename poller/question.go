package poller

import (
	"context"
	"errors"
	"time"

	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
)

// question asks the downstream what became of an unknown entry and settles the
// answer. A question has no effect there.
func (p *Poller) question(ctx context.Context, c claim) {
	asker := c.work.Handlers[c.tool.Name].Asker
	if p.stopping.Load() || asker == nil {
		p.unasked(c)
		return
	}
	if err := guard.Check(c.op, c.tool); err != nil {
		if p.outdated(c, err) {
			p.unasked(c)
			return
		}
		p.unaskable(c, err)
		return
	}
	limit := c.tool.Timeout
	if c.tool.Query != nil {
		limit = c.tool.Query.Timeout
	}
	asking, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	asked, began := p.l.Now(), time.Now()
	ans := p.ask(asking, asker, c)
	p.o.Observer.Attempt(c.tool.Name, "query_"+string(ans.Found), time.Since(began))
	if c.probe && ctx.Err() == nil {
		defer p.breaker(c, ans.Found == handler.NoAnswer, ans.Code)
	}
	if ans.Found == handler.Applied {
		if problems := c.tool.Output.Check("result", ans.Result); len(problems) > 0 {
			ans = handler.Answer{Found: handler.NoAnswer, Code: deadletter.OutputInvalid, Excerpt: misfit(ans.Result, problems)}
		}
	}
	switch {
	case ans.Found == handler.Applied:
		p.deliver(c, handler.Outcome{Result: ans.Result, Reference: ans.Reference, Code: ans.Code})
	case ctx.Err() != nil:
		p.unasked(c)
	default:
		p.answered(c, ans, asked)
	}
}

// ask puts the question. A panic of an Asker is no answer.
func (p *Poller) ask(ctx context.Context, a handler.Asker, c claim) (ans handler.Answer) {
	defer func() {
		if v := recover(); v != nil {
			ans = handler.Answer{Found: handler.NoAnswer, Code: codePanic, Err: panicked(v)}
		}
		ans = ans.Normal()
		p.complain(c, ans.Code, ans.Err)
	}()
	return a.Ask(ctx, request(c, handler.Query))
}

// unaskable: the row is not what was accepted, or the tool means something else by
// now, and may be asked elsewhere, where "not applied" is no proof. A person decides.
func (p *Poller) unaskable(c claim, err error) {
	o := refused(err)
	ev := entry.Evidence{Kind: entry.Query, Phase: "asked", Class: string(handler.NoAnswer), Code: o.Code, Excerpt: o.Excerpt}
	p.settleQuestion(c, ev, func(tx *ledger.Tx) (entry.State, error) {
		return c.held.StillUnknown(tx, entry.StillUnknown{Event: entry.NoAnswer, Reason: o.why, Evidence: ev})
	})
}

// unasked gives a question back that was not put, or not heard out.
func (p *Poller) unasked(c claim) {
	ev := entry.Evidence{Kind: entry.Query, Phase: "asked", Class: string(handler.NoAnswer), Code: "drained"}
	p.settleQuestion(c, ev, func(tx *ledger.Tx) (entry.State, error) {
		return c.held.StillUnknown(tx, entry.StillUnknown{Event: entry.AskOver, At: tx.Now(), Reason: deadletter.Unproven, Evidence: ev})
	})
}

func (p *Poller) answered(c claim, ans handler.Answer, asked time.Time) {
	ev := entry.Evidence{Kind: entry.Query, Phase: "asked", Class: string(ans.Found), Code: ans.Code, Excerpt: ans.Excerpt}
	p.settleQuestion(c, ev, func(tx *ledger.Tx) (entry.State, error) {
		j, err := p.judge(tx, c)
		if err != nil {
			return "", err
		}
		now, err := entry.Get(tx, c.held.ID) // a step of the clock may have moved it
		if err != nil {
			return "", err
		}
		j.due.OverAt = now.OverAt
		return j.answer(tx, ans, asked, ev)
	})
}

func (p *Poller) settleQuestion(c claim, ev entry.Evidence, fn func(*ledger.Tx) (entry.State, error)) {
	var to entry.State
	err := p.persist(c.held, func(tx *ledger.Tx) (err error) {
		to, err = fn(tx)
		return err
	})
	if errors.Is(err, entry.ErrStale) {
		p.stale(c)
		ev.Kind = entry.Late
		err = p.persist(c.held, func(tx *ledger.Tx) error { return entry.Record(tx, c.held, ev) })
		to = c.held.State
	}
	p.settled(c, to, ev.Code, err)
}

// answer decides what an answer proves. "Not applied" counts only when the
// attempt was known to be over as the question was put, which a clock that has just
// been set does not tell, and while the downstream still remembers the key.
func (j judge) answer(tx *ledger.Tx, ans handler.Answer, asked time.Time, ev entry.Evidence) (entry.State, error) {
	still := entry.StillUnknown{Event: entry.NoAnswer, Reason: deadletter.Unproven, Evidence: ev}
	switch {
	case ans.Found == handler.Conflict:
		still.Event, still.Reason = entry.Conflict, deadletter.Conflict
		return j.held.StillUnknown(tx, still)
	case ans.Found == handler.NotApplied && j.doubtful:
		still.Event, still.At = entry.TooEarly, j.limits.Now.Add(j.delay(1, false, 0))
		return j.held.StillUnknown(tx, still)
	case ans.Found == handler.NotApplied && asked.Before(j.due.OverAt):
		still.Event, still.At = entry.TooEarly, j.overAt()
		still.Over = still.At
		return j.held.StillUnknown(tx, still)
	case ans.Found == handler.NotApplied && j.limits.Answerable(j.due):
		at := j.limits.Now.Add(j.delay(j.due.Failures+1, ans.HasRetryAfter, ans.RetryAfter))
		return j.held.NotApplied(tx, at, j.limits.AfterFailure(j.due, time.Time{}, at), ev)
	}
	if ans.Code == deadletter.OutputInvalid {
		still.Reason = ans.Code
	} else if j.due.Queries+1 >= j.tool.Retry.MaxQueries {
		still.Reason = deadletter.QueriesExhausted
	} else {
		still.At = j.limits.Now.Add(j.delay(j.due.Queries+1, ans.HasRetryAfter, ans.RetryAfter))
	}
	return j.held.StillUnknown(tx, still)
}

// overAt is when the attempt is known to be over. Where the clock was set back
// since it was sent, that is counted from now.
func (j judge) overAt() time.Time {
	if latest := over(j.limits.Now, j.tool); j.due.OverAt.After(latest) {
		return latest
	}
	return j.due.OverAt
}

// lateNothing: as nothing, of an attempt that has lost its lease.
func (j judge) lateNothing(tx *ledger.Tx, o observation, ev entry.Evidence) (entry.State, error) {
	at := j.next(o)
	giveUp := j.limits.AfterFailure(j.due, j.due.UnprovenSince, at)
	if o.Observed == handler.Rejected {
		giveUp = deadletter.Rejected
	}
	return j.held.LateNothing(tx, at, giveUp, ev)
}
