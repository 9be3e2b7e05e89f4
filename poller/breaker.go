package poller

import (
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/hook"
	"github.com/outboxd/outboxd/ledger"
)

// A breaker leaves a destination alone that does not answer: after so many failures
// in a row, within its window, nothing starts for a cooldown, and then one attempt at a time until one
// gets through. It is open while outbox_tool.breaker_until is not NULL, so that a
// restart does not hammer what has just been left alone.

// unwell: the destination is not up to it, whatever the request was.
func unwell(o handler.Outcome) bool {
	switch o.Observed {
	case handler.NotSent, handler.MayHaveHappened:
		return true
	case handler.TryAgain:
		return strings.HasPrefix(o.Code, "http_5")
	}
	return false
}

// breaker opens or closes the breaker of the tool after an attempt. probe says that
// it was the one that an open breaker let through.
func (p *Poller) breaker(c claim, bad bool, code string) {
	b := c.tool.Breaker
	if b.Failures == 0 {
		return
	}
	if !bad {
		p.failures.forget(c.tool.Name)
	}
	switch {
	case c.probe && !bad:
		p.setBreaker(c, time.Time{}, "")
		p.log.Info("breaker closed", zap.String("tool", c.tool.Name))
	case c.probe, bad && p.failures.many(c.tool.Name, b.Failures, b.Window):
		until := p.l.Now().Add(b.Cooldown)
		p.setBreaker(c, until, code)
		p.log.Warn("breaker open: the destination fails again and again",
			zap.String("tool", c.tool.Name), zap.String("code", code), zap.Time("until", until))
	}
}

// setBreaker is written until the file takes it, as an outcome is. A probe that fails
// tells nobody anything new.
func (p *Poller) setBreaker(c claim, until time.Time, code string) {
	err := p.persist(c.held, func(tx *ledger.Tx) error {
		n, err := tx.Exec(`UPDATE outbox_tool SET breaker_until = ? WHERE tool_name = ?`, until, c.tool.Name)
		if err != nil || n == 0 || until.IsZero() || c.probe {
			return err
		}
		return p.Work().Hook.Tool(tx, hook.Breaker, c.tool.Name, code)
	})
	if err != nil {
		p.log.Error("breaker not set", zap.String("tool", c.tool.Name), zap.Error(err))
	}
	p.Wake()
}

// admits is how many of the n attempts that a tool has room for its breaker lets
// start now, and whether that one is the probe; wait is how long it is closed to
// everything.
func (b toolRow) admits(t *contract.Tool, running, n int, now time.Time) (allowed int, probe bool, wait time.Duration) {
	switch {
	case b.breakerUntil.IsZero() || t.Breaker.Failures == 0:
		return n, false, 0
	case now.Before(b.breakerUntil):
		return 0, false, min(b.breakerUntil.Sub(now), t.Breaker.Cooldown) // the clock may have been set
	case running > 0:
		return 0, false, 0
	}
	return min(n, 1), true, 0
}
