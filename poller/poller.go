// Package poller decides what runs next and when it runs again: it is woken by
// an accept, by another process's commit or by the next due time, claims what
// may start now, checks it, marks it, calls the handler and settles what came of
// it.
//
// One goroutine owns the slots and takes every decision about what starts; each
// attempt has a goroutine of its own that ends with the settle. Whether a
// transition is still allowed is entry's to say; when to give up is deadletter's.
// It owns outbox_tool.
package poller

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/hook"
	"github.com/outboxd/outboxd/lease"
	"github.com/outboxd/outboxd/ledger"
)

// Work is one immutable snapshot of what there is to work with. An attempt sees
// one of them from its claim to its call.
type Work struct {
	Registry *contract.Registry
	Handlers map[string]handler.Pair // by tool; every tool of Registry has one
	Hook     *hook.Hook              // is told of pauses and open breakers; nil: nobody is
	Guards   map[string]*guard.Set   // by tool; one without guards has none
	Roles    guard.Roles             // for guards; nil: nobody has any
}

// Observer is told what happens, for metrics. Its methods must not block.
type Observer interface {
	Attempt(tool, outcome string, took time.Duration) // an attempt or a question ended
	Stale(tool string)                                // a settle was refused: somebody else had taken over
	Stepped(by time.Duration)                         // the wall clock was set
	Settled(statusRef string)                         // an entry moved, and that is committed

	Claimed(tool string, lag time.Duration) // an attempt or a question begins, so long after it was due
	TookIn(accepted, repeated, refused int) // rows of outbox_intake, and that is committed

	// Again: a second attempt of one entry succeeded. Of an effect that the downstream
	// does not deduplicate that is a duplicate; conflict: the results differ.
	Again(tool string, effect entry.Effect, conflict bool)
}

// Options of a Poller.
type Options struct {
	Concurrency  int           // attempts and questions at a time
	PollInterval time.Duration // the safety net under the wakes
	TookOver     bool          // this daemon began alone: time since the last claim ages nothing
	Check        func() error  // asked at each pass; an error ends Run. nil: nothing
	Observer     Observer      // nil: nobody
	Began        func()        // called once by Run, when it looks for work. nil: nothing
}

// Poller runs what is due. The fields below the line belong to Run's goroutine.
type Poller struct {
	l      *ledger.Ledger
	keeper *lease.Keeper
	log    *zap.Logger
	o      Options

	work     atomic.Pointer[Work]
	stand    atomic.Pointer[standing] // of the last pass; nil: there was none
	wake     chan struct{}            // capacity 1
	written  chan struct{}            // capacity 1: somebody, perhaps this process, wrote to the file
	finished chan finish
	stopping atomic.Bool  // nothing that was not handed over may start any more
	ageless  atomic.Bool  // the clock was set a moment ago
	cut      atomic.Int64 // attempts that the drain limit ended
	streaks  streaks
	failures recent // of destinations, for the breakers
	unknowns recent
	attempts sync.WaitGroup
	gate     gate
	pulse    pulse

	settling context.Context // of outcomes that cannot be recorded yet
	abandon  context.CancelFunc

	slots     slots
	ahead     ahead // of the next pass
	clock     clock
	reach     reach
	undrained undrained
	unparked  *Work // for whose tools parked rows were looked at again
	failing   bool  // the last pass could not look
}

// New returns a poller that does nothing until Run.
func New(l *ledger.Ledger, k *lease.Keeper, w *Work, o Options, log *zap.Logger) *Poller {
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	if o.Check == nil {
		o.Check = func() error { return nil }
	}
	if o.Began == nil {
		o.Began = func() {}
	}
	p := &Poller{
		l: l, keeper: k, log: log, o: o,
		wake:     make(chan struct{}, 1),
		written:  make(chan struct{}, 1),
		finished: make(chan finish, o.Concurrency),
		slots:    newSlots(o.Concurrency),
	}
	p.pulse.began = sync.OnceFunc(o.Began)
	p.clock.tick(l.Now(), time.Now())
	p.settling, p.abandon = context.WithCancel(context.Background())
	p.work.Store(w)
	return p
}

// Work is the snapshot that the next pass works with.
func (p *Poller) Work() *Work { return p.work.Load() }

// Wake makes Run look at once: something was accepted.
func (p *Poller) Wake() { signal(p.wake) }

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// CutOff is how many attempts were ended by the drain limit.
func (p *Poller) CutOff() int { return int(p.cut.Load()) }

// gatherTime is how long a pass waits for more slots to come free while there is
// a backlog: claims are cheaper together.
const gatherTime = 300 * time.Microsecond

// writtenTime is the least time between two looks for which only writes to the
// file are the reason, while attempts run.
const writtenTime = 2 * time.Millisecond

// Run claims and works until ctx ends, then waits for what it has started. work
// ends what runs: its outcomes are recorded all the same, unless the file does
// not take them for long. Run returns an error when the file is lost, and
// ErrUnrecorded with its cause when an outcome is.
func (p *Poller) Run(ctx, work context.Context) error {
	if err := p.begin(ctx, work); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before anything ran
		}
		return err
	}
	p.pulse.began()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var looked time.Time
	for {
		select {
		case <-ctx.Done():
			return p.drain(work)
		case <-p.l.Dead():
			return errors.Join(p.l.Err(), p.drain(work))
		case f := <-p.finished:
			p.slots.reap(f)
			if p.slots.gathering() {
				timer.Reset(gatherTime)
				continue
			}
		case <-p.wake:
		case <-p.written:
			if wait := p.ownWrite(looked); wait > 0 {
				timer.Reset(wait)
				continue
			}
		case <-timer.C:
		}
		p.reap()
		looked = time.Now()
		next, err := p.pass(ctx, work)
		p.pulse.looks.Add(1)
		if err != nil {
			return errors.Join(err, p.drain(work))
		}
		timer.Reset(next)
	}
}

// begin makes good what happened since the last claim, and lets others join.
func (p *Poller) begin(ctx, work context.Context) error {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	gone, err := p.resume(ctx)
	if err != nil {
		return err
	}
	if gone < -stepSize {
		p.clock.wasAhead(time.Now())
		p.stepped(gone)
	}
	p.gate.work, p.gate.running, p.gate.resumed = work, true, true
	return nil
}

// ownWrite is how long to wait after a write was noticed: while attempts run it is
// most likely one of their own, and after a look that failed that one's.
func (p *Poller) ownWrite(looked time.Time) time.Duration {
	if p.failing {
		return retryPass - time.Since(looked)
	}
	if p.slots.running == 0 {
		return 0
	}
	return writtenTime - time.Since(looked)
}

// reap takes back every slot that is free by now.
func (p *Poller) reap() {
	for {
		select {
		case f := <-p.finished:
			p.slots.reap(f)
		default:
			return
		}
	}
}

// Abandon gives up at once what cannot be recorded while Run drains: the caller is
// in a hurry. It is of use once work has ended. It may be called from anywhere, at
// any time after that.
func (p *Poller) Abandon() { p.abandon() }

// drain waits for what runs. Once work has ended, what cannot be recorded soon is
// left to the next start.
func (p *Poller) drain(work context.Context) error {
	p.close()
	extension := time.NewTimer(settleExtend)
	extension.Stop()
	defer extension.Stop()
	cut, done := work.Done(), make(chan struct{})
	go func() {
		p.attempts.Wait()
		close(done)
	}()
	for {
		p.pulse.looks.Add(1)
		select {
		case f := <-p.finished:
			p.slots.reap(f)
		case <-p.wake: // somebody looks whether this moves
		case <-cut:
			cut = nil
			extension.Reset(settleExtend)
		case <-extension.C:
			p.abandon()
		case <-done:
			p.gate.mu.Lock()
			defer p.gate.mu.Unlock()
			return p.gate.lost
		}
	}
}

type nobody struct{}

func (nobody) Attempt(string, string, time.Duration) {}
func (nobody) Stale(string)                          {}
func (nobody) Stepped(time.Duration)                 {}
func (nobody) Settled(string)                        {}
func (nobody) Claimed(string, time.Duration)         {}
func (nobody) TookIn(int, int, int)                  {}
func (nobody) Again(string, entry.Effect, bool)      {}
