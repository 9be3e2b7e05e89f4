package poller

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
)

// A settle that could not be committed is tried again.
const (
	settleRetry   = 250 * time.Millisecond
	settleRefused = time.Second // where it is the application that refuses it
	settleExtend  = 5 * time.Second
)

// ErrUnrecorded says that Run ended with outcomes that the file did not take. The
// next start takes their entries for attempts that may have happened.
var ErrUnrecorded = errors.New("an outcome could not be recorded: the next start takes it for one that nobody heard")

// settle records what an attempt came to. The transition is the fence: if the
// token is no longer the entry's, only evidence is kept.
func (p *Poller) settle(c claim, o observation) {
	if o.Observed == handler.Succeeded {
		problems := c.tool.Output.Check("result", o.Result)
		if len(problems) == 0 {
			p.deliver(c, o.Outcome)
			return
		}
		o = unfit(o, problems)
	}
	var to entry.State
	err := p.persist(c.held, func(tx *ledger.Tx) (err error) {
		j, err := p.judge(tx, c)
		if err != nil {
			return err
		}
		to, err = j.settle(tx, o)
		return err
	})
	if errors.Is(err, entry.ErrStale) {
		p.late(c, o)
		return
	}
	p.settled(c, to, o.Code, err)
}

// deliver records the receipt of a success.
func (p *Poller) deliver(c claim, out handler.Outcome) {
	r, code := receipt(c.op, out.Result, out.Reference), out.Code
	if c.held.State == entry.Unknown {
		r.How = entry.Reconciled
	}
	err := p.persist(c.held, func(tx *ledger.Tx) error { return p.succeed(tx, c, r, out.FollowUps) })
	if errors.Is(err, entry.ErrStale) {
		o := observation{}
		o.Observed, o.Code = handler.Succeeded, code
		p.late(c, o)
		p.againLate(c, r.ResultSum)
		return
	}
	if err == nil && c.held.Attempt > 1 {
		p.againDelivered(c)
	}
	p.settled(c, entry.Delivered, code, err)
}

func receipt(op *contract.Operation, result []byte, reference string) entry.Receipt {
	sum := contract.ResultDigest(result)
	return entry.Receipt{Result: result, ResultSum: sum, Reference: reference,
		Binding: op.Bind(sum, reference).Digest(), How: entry.Fresh}
}

// persist writes until it is committed or refused: an outcome that is known
// must not be lost to a full disk or to somebody else's lock. It gives up with
// the file, settleExtend after the drain limit, or when that is cut short.
func (p *Poller) persist(h entry.Held, fn func(*ledger.Tx) error) error {
	return p.persistUnless(h, fn, func(error) bool { return false })
}

// persistUnless is persist for what may itself be why it is refused: over says so,
// and the error is returned.
func (p *Poller) persistUnless(h entry.Held, fn func(*ledger.Tx) error, over func(error) bool) error {
	uncertain := false
	for last := error(nil); ; {
		err := p.l.Write(p.settling, fn)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, entry.ErrStale):
			if uncertain && p.recorded(h) {
				return nil // by the write that could not tell
			}
			return err
		case p.l.Err() != nil:
			return p.l.Err()
		case over(err):
			return err
		case errors.Is(err, ledger.ErrClosed), p.settling.Err() != nil:
			return errors.Join(err, last)
		}
		uncertain = uncertain || errors.Is(err, ledger.ErrCommitUnknown)
		if last == nil {
			p.log.Warn("outcome not recorded yet", zap.Error(err))
		}
		last = err
		wait := settleRetry
		if ledger.Refusal(err) != "" {
			wait = settleRefused
		}
		select {
		case <-p.l.Dead():
		case <-p.settling.Done():
		case <-time.After(wait):
		}
	}
}

// recorded reports whether what came of the held attempt or question is in the
// file. Where that cannot be read it is recorded once more, as late.
func (p *Poller) recorded(h entry.Held) (yes bool) {
	err := p.l.Read(context.Background(), func(v *ledger.View) (err error) {
		yes, err = entry.Recorded(v, h)
		return err
	})
	return err == nil && yes
}

// lost keeps the error with which an outcome was given up, for Run to return.
func (p *Poller) lost(err error) {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.gate.lost = errors.Join(ErrUnrecorded, err)
}

// undo gives back an entry of which nothing was handed over. A mark that could
// not tell whether it was committed may have been.
func (p *Poller) undo(c claim) {
	err := p.persist(c.held, c.held.Undo)
	if errors.Is(err, entry.ErrStale) && c.held.State == entry.Claimed {
		c.held.State = entry.Sending
		err = p.persist(c.held, c.held.Undo)
	}
	if errors.Is(err, entry.ErrStale) {
		p.stale(c)
		return
	}
	p.settled(c, entry.Pending, "drained", err)
}

// late keeps what came after somebody else had taken over. A proof of no effect
// still voids its own send while nobody has the entry.
func (p *Poller) late(c claim, o observation) {
	p.stale(c)
	err := p.persist(c.held, func(tx *ledger.Tx) error {
		j, err := p.judge(tx, c)
		if err != nil {
			return err
		}
		ev := j.evidence(o)
		ev.Kind = entry.Late
		if o.Observed == handler.TryAgain || o.Observed == handler.NotSent || o.Observed == handler.Rejected {
			if _, err := j.lateNothing(tx, o, ev); !errors.Is(err, entry.ErrStale) {
				return err
			}
		}
		return entry.Record(tx, c.held, ev)
	})
	if err != nil {
		p.lost(err)
		p.log.Error("late outcome not recorded", p.fields(c, zap.String("code", o.Code), zap.Error(err))...)
	}
}

func (p *Poller) stale(c claim) {
	p.o.Observer.Stale(c.tool.Name)
	p.log.Warn("settle refused: somebody else has the entry", p.fields(c)...)
}

// settled tells everybody. After an error, that the file is lost or could not be
// written to the end, the entry stands as it was marked, and the next start
// lapses it.
func (p *Poller) settled(c claim, to entry.State, code string, err error) {
	if err != nil {
		p.lost(err)
		p.log.Error("outcome not recorded", p.fields(c, zap.String("code", code), zap.Error(err))...)
		return
	}
	p.o.Observer.Settled(c.op.StatusRef)
	if to == entry.Unknown && c.held.State == entry.Sending {
		p.unproven(c)
	}
	if e := p.log.Check(level(to), "entry settled"); e != nil {
		e.Write(p.fields(c, zap.String("state", string(to)), zap.String("code", code))...)
	}
}

func (p *Poller) fields(c claim, more ...zap.Field) []zap.Field {
	return append([]zap.Field{zap.String("status_ref", c.op.StatusRef), zap.String("tool", c.tool.Name),
		zap.Int("attempt", c.held.Attempt), zap.Int64("token", c.held.Token)}, more...)
}

// level: what waits for a person is worth a line, the rest is detail.
func level(to entry.State) zapcore.Level {
	if to == entry.Dead || to == entry.Unknown {
		return zapcore.InfoLevel
	}
	return zapcore.DebugLevel
}
