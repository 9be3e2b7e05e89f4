package poller

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/deadletter"
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
	held entry.Held
	due  entry.Due
	op   *contract.Operation
	tool *contract.Tool
	work *Work
}

// share is what a pass may start of one tool.
type share struct {
	tool *contract.Tool
	n    int
}

// pass looks once: it takes in what applications wrote, claims what may start
// now and starts it. It returns how long until the next look.
func (p *Poller) pass(ctx, work context.Context) (time.Duration, error) {
	if err := p.o.Check(); err != nil {
		return 0, err
	}
	if by := p.clock.tick(p.l.Now(), time.Now()); by != 0 {
		p.log.Warn("wall clock was set", zap.Duration("by", by))
		p.o.Observer.Stepped(by)
	}
	p.ageless.Store(p.clock.ageless(time.Now()))
	f := p.plan()
	err := p.l.Write(ctx, f.look)
	switch {
	case ctx.Err() != nil && err != nil:
		return 0, nil
	case p.l.Err() != nil:
		return 0, p.l.Err()
	case err != nil:
		p.log.Warn("looking for due work failed", zap.Error(err))
		if errors.Is(err, ledger.ErrCommitUnknown) {
			p.keeper.Sweep()
		}
		return retryPass, nil
	}
	p.slots.backlog = f.more
	for _, c := range f.claims {
		p.start(work, c)
	}
	if f.again() && p.slots.free() > 0 {
		p.Wake()
	}
	return f.wait(p.o.PollInterval), nil
}

// finder is one pass. What it was given stands first; what it finds is reset
// whenever the closure runs again.
type finder struct {
	p        *Poller
	work     *Work
	shares   []share
	free     int
	suspects bool
	idle     time.Duration // until a rate or a suspect lets more start; 0: no matter

	claims []claim
	moved  int       // entries given up or lapsed
	taken  int       // intake rows taken in
	more   bool      // due work was left behind
	next   time.Time // when the next entry is due; zero: none
	now    time.Time
}

func (p *Poller) plan() *finder {
	f := &finder{p: p, work: p.Work(), free: p.slots.free()}
	var wait time.Duration
	f.suspects, f.idle = p.slots.suspect(time.Now())
	for _, name := range f.work.Registry.Names() {
		tool, _ := f.work.Registry.Lookup(name)
		if p.tools.paused(name) {
			continue
		}
		n, w := p.slots.quota(tool)
		if w > 0 && (wait == 0 || w < wait) {
			wait = w
		}
		f.shares = append(f.shares, share{tool, n})
	}
	if wait > 0 && (f.idle == 0 || wait < f.idle) {
		f.idle = wait
	}
	return f
}

// look is the closure of a pass.
func (f *finder) look(tx *ledger.Tx) error {
	f.claims, f.moved, f.taken, f.more, f.next, f.now = nil, 0, 0, false, time.Time{}, tx.Now()
	drained, err := intake.Drain(tx, f.work.Registry, intakeBatch)
	if err != nil {
		return fmt.Errorf("drain intake: %w", err)
	}
	f.taken = drained.Accepted + drained.Refused + drained.Parked
	f.more = drained.More
	picked, err := f.pick(tx)
	if err != nil || len(picked) == 0 {
		return err
	}
	return f.take(tx, picked)
}

// again: there is more to do without waiting for anything.
func (f *finder) again() bool { return f.more && len(f.claims)+f.moved+f.taken > 0 }

func (f *finder) wait(most time.Duration) time.Duration {
	wait := most
	if f.idle > 0 {
		wait = min(wait, f.idle)
	}
	if !f.next.IsZero() {
		wait = min(wait, max(f.next.Sub(f.now), 0))
	}
	return wait
}

// pick probes each tool that has a slot free and merges what is due by due time.
func (f *finder) pick(tx *ledger.Tx) ([]candidate, error) {
	var found []candidate
	for _, s := range f.shares {
		if s.n > 0 {
			rows, err := entry.Probe(tx, s.tool.Name, s.n, f.suspects)
			if err != nil {
				return nil, err
			}
			for _, d := range rows {
				found = append(found, candidate{d, s.tool})
			}
			if len(rows) == s.n {
				f.more = true
				continue
			}
		}
		if err := f.later(tx, s.tool.Name); err != nil {
			return nil, err
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].due.DueAt.Before(found[j].due.DueAt) })
	return f.sift(tx, found)
}

// later notes when the next entry of a tool will be due.
func (f *finder) later(tx *ledger.Tx, tool string) error {
	at, err := entry.NextDue(tx, tool, tx.Now())
	if err == nil && !at.IsZero() && (f.next.IsZero() || at.Before(f.next)) {
		f.next = at
	}
	return err
}

type candidate struct {
	due  entry.Due
	tool *contract.Tool
}

// sift keeps what may start and moves what must not: past a limit, or leased by
// a process that lets its leases run out.
func (f *finder) sift(tx *ledger.Tx, found []candidate) ([]candidate, error) {
	var picked []candidate
	suspects := 0
	for _, c := range found {
		if c.due.Suspect && c.due.State == entry.Pending {
			if suspects++; suspects > 1 {
				f.more = true
				continue
			}
		}
		if len(picked) == f.free {
			f.more = true
			break
		}
		moved, err := f.move(tx, c)
		if err != nil {
			return nil, err
		}
		if moved {
			f.moved++
			continue
		}
		picked = append(picked, c)
	}
	return picked, nil
}

// move settles what needs no attempt. It reports whether it did.
func (f *finder) move(tx *ledger.Tx, c candidate) (bool, error) {
	switch {
	case c.due.Token != 0:
		return true, ignoreStale(c.due.Held().Lapse(tx))
	case c.due.State == entry.Waiting:
		return true, ignoreStale(entry.Drop(tx, entry.Refuse, c.due.ID, entry.Waiting, "approval_expired"))
	case c.due.State == entry.Unknown && f.work.Handlers[c.tool.Name].Asker == nil:
		_, err := entry.Expire(tx, c.due, deadletter.NoQuery)
		return true, ignoreStale(err)
	case c.due.State != entry.Pending:
		return false, nil
	}
	reason := f.p.limits(c.tool, tx.Now()).AtClaim(c.due)
	if reason == "" {
		return false, nil
	}
	_, err := entry.Expire(tx, c.due, reason)
	return true, ignoreStale(err)
}

func ignoreStale(err error) error {
	if errors.Is(err, entry.ErrStale) {
		return nil // it has moved since it was read: it is not ours to move
	}
	return err
}

// take claims the picked entries under fresh tokens.
func (f *finder) take(tx *ledger.Tx, picked []candidate) error {
	ids := make([]int64, len(picked))
	for i, c := range picked {
		ids[i] = c.due.ID
	}
	ops, err := intake.Load(tx, ids)
	if err != nil {
		return err
	}
	token, err := tx.Tokens(len(picked))
	if err != nil {
		return err
	}
	for i, c := range picked {
		op := ops[c.due.ID]
		if op == nil {
			return fmt.Errorf("entry %d has no operation", c.due.ID)
		}
		held, err := f.claim(tx, c, op, token+int64(i))
		if errors.Is(err, entry.ErrStale) {
			continue
		}
		if err != nil {
			return err
		}
		f.claims = append(f.claims, claim{held, c.due, op, c.tool, f.work})
	}
	return nil
}

func (f *finder) claim(tx *ledger.Tx, c candidate, op *contract.Operation, token int64) (entry.Held, error) {
	l := entry.Lease{Token: token, Until: f.p.keeper.Until(tx.Now()), Over: over(tx.Now(), c.tool)}
	if c.due.State == entry.Unknown {
		return entry.Question(tx, c.due, l, false)
	}
	return entry.Take(tx, c.due, l, op.Effect.Marked())
}

// over is when a request sent at now is known to be over whatever is heard of
// it: after its time limit and what the tool's query asks for on top.
func over(now time.Time, t *contract.Tool) time.Time {
	at := now.Add(t.Timeout)
	if t.Query != nil {
		at = at.Add(t.Query.NotBefore)
	}
	return at
}

// limits of a tool at this moment.
func (p *Poller) limits(t *contract.Tool, now time.Time) deadletter.Limits {
	return deadletter.Limits{Retry: t.Retry, KeyWindow: t.KeyWindow, Now: now,
		Excused: p.tools.excused(t.Name), NoAge: p.ageless.Load()}
}
