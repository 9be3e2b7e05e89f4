package poller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// intakeBatch is how many rows of outbox_intake one pass takes in.
const intakeBatch = 200

// retryPass is how long a pass that failed waits.
const retryPass = 250 * time.Millisecond

// claim is one piece of work: an attempt or, where the entry is unknown, a
// question.
type claim struct {
	held  entry.Held
	due   entry.Due
	op    *contract.Operation
	tool  *contract.Tool
	work  *Work
	since time.Time // when it was claimed or marked, monotonic
	probe bool      // what an open breaker lets through
}

// move is an entry that a pass settled without an attempt.
type move struct {
	due  entry.Due
	to   entry.State // "": its lease was over, and its class decided
	code string
	op   *contract.Operation
}

// share is what a pass may start of one tool.
type share struct {
	tool *contract.Tool
	n    int
	runs int           // of it already
	wait time.Duration // until its rate lets more start; 0: no matter
}

// pass looks once: it takes in what applications wrote, claims what may start
// now and starts it. It returns how long until the next look.
func (p *Poller) pass(ctx, work context.Context) (time.Duration, error) {
	if err := p.o.Check(); err != nil {
		return 0, err
	}
	p.notice(ctx)
	p.reschedule(ctx)
	f := p.plan()
	err := p.look(ctx, f)
	switch {
	case ctx.Err() != nil && err != nil:
		return 0, nil
	case p.l.Err() != nil:
		return 0, p.l.Err()
	case err != nil:
		p.unlooked(err)
		return retryPass, nil
	}
	p.refused(f.refused)
	p.stand.Store(&standing{f.shares, f.free, f.idle})
	p.unparked = f.unparked
	p.slots.backlog = f.more
	for _, c := range f.claims {
		p.o.Observer.Claimed(c.tool.Name, max(0, f.now.Sub(c.due.DueAt)))
		p.start(work, c)
	}
	if f.taken > 0 {
		p.o.Observer.TookIn(f.intake.Accepted, f.intake.Repeated, f.intake.Refused)
	}
	p.moved(f.moves)
	p.readAhead(ctx, f.shares)
	p.drained(ctx, f)
	if f.again() && p.slots.free() > 0 {
		p.Wake()
	}
	return f.wait(p.o.PollInterval), nil
}

// unlooked: a pass failed. One that follows another says nothing new.
func (p *Poller) unlooked(err error) {
	if !p.failing {
		p.log.Warn("looking for due work failed", zap.Error(err))
	}
	p.failing = true
	if errors.Is(err, ledger.ErrCommitUnknown) {
		p.keeper.Sweep()
	}
}

// refused: a pass left entries alone since the file refuses to have them changed.
func (p *Poller) refused(err error) {
	if err != nil && !p.failing {
		p.log.Warn("due work not started", zap.String("error", describe(err)))
	}
	p.failing = err != nil
}

// moved tells everybody what a pass settled by itself.
func (p *Poller) moved(moves []move) {
	lapsed := 0
	for _, m := range moves {
		message := "entry settled"
		if m.to == "" {
			message = "lease of another process is over"
			lapsed++
		}
		if m.op == nil {
			continue // somebody deleted its operation: nobody waits for it
		}
		p.o.Observer.Settled(m.op.StatusRef)
		p.log.Info(message, zap.String("status_ref", m.op.StatusRef), zap.String("tool", m.due.Tool),
			zap.Int("attempt", m.due.Attempts), zap.Int64("token", m.due.ClaimToken),
			zap.String("state", string(m.to)), zap.String("code", m.code))
	}
	if lapsed > 0 {
		p.keeper.Lapsed(lapsed)
	}
}

// finder is one pass. What it was given stands first; what it finds is reset
// whenever the closure runs again.
type finder struct {
	p        *Poller
	work     *Work
	shares   []share
	free     int
	suspects bool
	idle     time.Duration // until another suspect may start; 0: no matter
	drains   bool          // outbox_intake, too
	careful  bool          // what the file refuses of one entry is left out

	tools     map[string]toolRow
	claims    []claim
	moves     []move // entries given up or lapsed
	unparked  *Work  // for whose tools no row is parked
	taken     int    // intake rows taken in
	intake    intake.Drained
	undrained error         // why none could be
	refused   error         // why entries were left alone
	rest      time.Duration // until a rate lets more start of what is due; 0: no matter
	more      bool          // due work was left behind
	next      time.Time     // when the next entry is due; zero: none
	now       time.Time
	began     time.Time // now, monotonic
}

func (p *Poller) plan() *finder {
	f := &finder{p: p, work: p.Work(), free: p.slots.free(), drains: p.undrained.rests() == 0}
	f.suspects, f.idle = p.slots.suspect(time.Now())
	for _, name := range f.work.Registry.Names() {
		tool, _ := f.work.Registry.Lookup(name)
		n, wait := p.slots.quota(tool)
		f.shares = append(f.shares, share{tool, n, p.slots.tools[name], wait})
	}
	return f
}

// look is the closure of a pass.
func (f *finder) look(tx *ledger.Tx) error {
	f.claims, f.moves, f.taken, f.more, f.rest, f.next = nil, nil, 0, false, 0, time.Time{}
	f.refused = nil
	f.tools, f.now, f.began = map[string]toolRow{}, tx.Now(), time.Now()
	if err := read(tx, f.tools); err != nil {
		return fmt.Errorf("read tools: %w", err)
	}
	if err := f.takeIn(tx); err != nil {
		return err
	}
	switch err := tx.Held(); {
	case errors.Is(err, ledger.ErrHeld):
		return nil // it accepts, and that is all: Release wakes it
	case err != nil:
		return err
	}
	picked, err := f.pick(tx)
	if err != nil || len(picked)+len(f.moves) == 0 {
		return err
	}
	return f.take(tx, picked)
}

// takeIn drains the intake as far as the file lets it: whatever else there is to do
// in this transaction is done all the same.
func (f *finder) takeIn(tx *ledger.Tx) error {
	f.unparked = f.p.unparked
	if !f.drains {
		return nil
	}
	var drained intake.Drained
	f.undrained = tx.Try(func() (err error) {
		work := f.p.Work() // of this moment: an older one would park rows for the tools of a newer one
		if err := f.unpark(tx, work); err != nil {
			return err
		}
		drained, err = intake.Drain(tx, work.Registry, intakeBatch)
		return err
	})
	switch {
	case errors.Is(f.undrained, ledger.ErrVoid):
		return fmt.Errorf("drain intake: %w", f.undrained)
	case f.undrained != nil:
		f.unparked = f.p.unparked
		return nil
	}
	f.taken, f.intake, f.more = drained.Moved(), drained, drained.More
	return nil
}

// each does what one entry asks for. A careful pass leaves out an entry whose
// change the file refuses: it stays due, and done is false.
func (f *finder) each(tx *ledger.Tx, fn func() error) (done bool, err error) {
	if !f.careful {
		return true, fn()
	}
	moves := len(f.moves)
	err = tx.Try(fn)
	if ledger.Refusal(err) == "" || errors.Is(err, ledger.ErrVoid) {
		return true, err
	}
	f.moves, f.refused = f.moves[:moves], err
	return false, nil
}

// again: there is more to do without waiting for anything.
func (f *finder) again() bool { return f.more && len(f.claims)+len(f.moves)+f.taken > 0 }

func (f *finder) wait(most time.Duration) time.Duration {
	wait := most
	for _, other := range []time.Duration{f.idle, f.rest, f.p.undrained.rests()} {
		if other > 0 {
			wait = min(wait, other)
		}
	}
	if !f.next.IsZero() {
		wait = min(wait, max(f.next.Sub(f.now), 0))
	}
	return wait
}
