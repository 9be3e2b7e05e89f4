package poller

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/backoff"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// correctBatch is how many entries one closure corrects.
const correctBatch = 500

// notice looks whether the wall clock was set, and makes good what that did to
// stored instants. What cannot be done now is tried again at the next pass.
func (p *Poller) notice(ctx context.Context) {
	if by := p.clock.tick(p.l.Now(), time.Now()); by != 0 {
		p.stepped(by)
	}
	p.ageless.Store(p.clock.ageless(time.Now()))
	if p.clock.ahead > 0 {
		if err := p.excuse(ctx, p.clock.ahead); err != nil {
			p.correctionFailed(ctx, err)
			return
		}
		p.clock.ahead = 0
	}
	if err := p.along(ctx); err != nil {
		p.correctionFailed(ctx, err)
		return
	}
	if p.clock.back {
		if err := p.nearer(ctx); err != nil {
			p.correctionFailed(ctx, err)
			return
		}
		p.clock.back = false
	}
}

func (p *Poller) stepped(by time.Duration) {
	p.log.Warn("wall clock was set", zap.Duration("by", by))
	p.o.Observer.Stepped(by)
}

func (p *Poller) correctionFailed(ctx context.Context, err error) {
	if ctx.Err() == nil {
		p.log.Warn("stored instants not corrected yet", zap.Error(err))
	}
}

// excuse credits every tool with time that passed on the wall clock only: the
// clock was wrong before, or the machine was asleep.
func (p *Poller) excuse(ctx context.Context, by time.Duration) error {
	err := p.l.Write(ctx, func(tx *ledger.Tx) error { return excuse(tx, by) })
	if err != nil {
		return fmt.Errorf("credit tools: %w", err)
	}
	return nil
}

// along moves the ends of attempts along with every step forward: an attempt that
// may still run does not end earlier because the clock was set.
func (p *Poller) along(ctx context.Context) error {
	for s := p.clock.first(); s != nil; s = p.clock.first() {
		if err := p.move(ctx, s); err != nil {
			return err
		}
		p.clock.corrected()
	}
	return nil
}

// move corrects what one step asks for; after an error it goes on where it was.
func (p *Poller) move(ctx context.Context, s *forward) error {
	if !s.read {
		err := p.l.Read(ctx, func(v *ledger.View) (err error) {
			s.ids, err = entry.StillRunning(v, s.then, s.sent)
			return err
		})
		if err != nil {
			return err
		}
		s.read = true
	}
	for len(s.ids) > 0 {
		n := min(len(s.ids), correctBatch)
		err := p.l.Write(ctx, func(tx *ledger.Tx) error { return entry.Later(tx, s.ids[:n], s.by, s.sent) })
		if err != nil {
			return err
		}
		s.ids = s.ids[n:]
	}
	return nil
}

// resume counts the time since the last claim of an earlier process for nothing:
// the clock may have been set in it, and an attempt of that process may still
// run. The token that it takes keeps the time from being credited twice. gone is
// negative when the clock was ahead.
func (p *Poller) resume(ctx context.Context) (gone time.Duration, err error) {
	var now time.Time
	err = p.l.Read(ctx, func(v *ledger.View) (err error) {
		now = p.l.Now()
		gone, err = down(v, now)
		return err
	})
	if err == nil && gone > 0 {
		err = p.move(ctx, &forward{by: gone, then: now.Add(-gone), sent: now})
	}
	if err != nil {
		return 0, fmt.Errorf("correct what was sent before: %w", err)
	}
	err = p.l.Write(ctx, func(tx *ledger.Tx) error {
		if err := enter(tx, p.Work().Registry.Names()); err != nil {
			return err
		}
		if p.o.TookOver && gone >= time.Second {
			if err := excuse(tx, gone); err != nil {
				return err
			}
		}
		_, err := tx.Tokens(1)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("enter tools: %w", err)
	}
	return gone, nil
}

// nearer lets no entry wait longer than its policy's cap because the clock was
// set back, and no dead process's lease last longer than a new one.
func (p *Poller) nearer(ctx context.Context) error {
	reg := p.Work().Registry
	for _, name := range reg.Names() {
		tool, _ := reg.Lookup(name)
		for n := correctBatch; n == correctBatch; {
			err := p.l.Write(ctx, func(tx *ledger.Tx) (err error) {
				wait := tx.Now().Add(longest(tool))
				n, err = entry.Nearer(tx, name, wait, p.keeper.Until(tx.Now()), correctBatch)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// longest is the longest that an entry of the tool waits for its next attempt.
func longest(t *contract.Tool) time.Duration {
	if t.Retry.Backoff.Max <= 0 {
		return backoff.Limit
	}
	return min(t.Retry.Backoff.Max, backoff.Limit)
}
