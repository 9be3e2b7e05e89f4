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

// nearerBatch is how many due times one closure corrects.
const nearerBatch = 500

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

// nearer lets no entry wait longer than its policy's cap because the clock was
// set back, and no dead process's lease last longer than a new one.
func (p *Poller) nearer(ctx context.Context) error {
	reg := p.Work().Registry
	for _, name := range reg.Names() {
		tool, _ := reg.Lookup(name)
		for n := nearerBatch; n == nearerBatch; {
			err := p.l.Write(ctx, func(tx *ledger.Tx) (err error) {
				wait := tx.Now().Add(longest(tool))
				n, err = entry.Nearer(tx, name, wait, p.keeper.Until(tx.Now()), nearerBatch)
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
