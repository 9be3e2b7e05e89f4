package poller

import (
	"errors"
	"time"

	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
)

// errUndo takes an effect back that did not succeed. It never leaves this file.
var errUndo = errors.New("effect is not kept")

// local is one attempt of a local tool: its effect and its settle are one
// transaction, which may run more than once.
type local struct {
	p    *Poller
	c    claim
	pair handler.Pair

	out  handler.Outcome
	no   error // of a guard that is asked in the transaction
	to   entry.State
	void error // of the effect that destroyed the transaction
}

// apply makes the attempt. An effect that destroys its transaction is settled by
// a second one, without it.
func (p *Poller) apply(c claim, pair handler.Pair) {
	a := &local{p: p, c: c, pair: pair}
	began := time.Now()
	err := p.persistUnless(c.held, a.settle, a.destroyed)
	p.o.Observer.Attempt(c.tool.Name, string(a.out.Observed), time.Since(began))
	p.complain(c, a.out.Code, a.out.Err)
	switch {
	case errors.Is(err, entry.ErrStale):
		p.stale(c) // whoever has the entry now produces the effect: nothing of ours is there
		return
	case err != nil && a.destroyed(err):
		p.settle(c, observation{Outcome: a.out})
	default:
		p.settled(c, a.to, a.out.Code, err)
	}
	p.misconfigured(c, a.out)
}

// settle is the transaction. The transition comes after the effect and is the
// fence: where it is refused, the effect is gone with it.
func (a *local) settle(tx *ledger.Tx) error {
	a.void = nil
	err := a.effect(tx)
	if err != nil && (!errors.Is(err, errUndo) || errors.Is(err, ledger.ErrOverTime)) {
		a.out = handler.Undone(err).Normal()
	}
	if errors.Is(err, ledger.ErrVoid) {
		a.void = err
		return err
	}
	if err == nil && a.out.Observed == handler.Succeeded {
		a.to = entry.Delivered
		return a.p.succeed(tx, a.c, receipt(a.c.op, a.out.Result, a.out.Reference), a.out.FollowUps)
	}
	j, err := a.p.judge(tx, a.c)
	if err != nil {
		return err
	}
	o := observation{Outcome: a.out}
	if a.no != nil {
		o = refused(a.no)
	}
	a.to, err = j.settle(tx, o)
	return err
}

// effect produces the effect, or nothing of it.
func (a *local) effect(tx *ledger.Tx) error {
	c := request(a.c, handler.Execute)
	if a.pair.BuiltIn != nil {
		return tx.Try(func() error { return a.observed(a.pair.BuiltIn(tx, c)) })
	}
	return tx.Effect(a.c.tool.Timeout, func(e *ledger.Effect) error {
		if a.no = a.c.work.Guards[a.c.tool.Name].Inside(e, request(a.c, "")); a.no != nil {
			a.out = refused(a.no).Outcome
			return errUndo
		}
		return a.observed(a.pair.Local.Apply(e, c))
	})
}

func (a *local) observed(out handler.Outcome) error {
	a.out = out.Normal()
	switch a.out.Observed {
	case handler.Succeeded:
		if problems := a.c.tool.Output.Check("result", a.out.Result); len(problems) > 0 {
			a.out = handler.Outcome{Observed: handler.Rejected, Code: deadletter.OutputInvalid, Answered: true,
				Excerpt: misfit(a.out.Result, problems)} // it is undone: the result could never be told
			return errUndo
		}
		return nil
	case handler.MayHaveHappened, handler.InProgress:
		a.out.Observed = handler.TryAgain // it is undone: nothing did
	}
	return errUndo
}

// destroyed: it was the effect that the transaction did not survive, and not the
// disk.
func (a *local) destroyed(err error) bool {
	return a.void != nil && errors.Is(err, ledger.ErrVoid) && !errors.Is(err, ledger.ErrDiskFull) &&
		!errors.Is(err, ledger.ErrCommitUnknown)
}
