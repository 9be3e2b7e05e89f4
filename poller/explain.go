package poller

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// Why is one reason for which an entry is not attempted, or not asked about, at
// this moment.
type Why struct {
	Code  string
	What  string
	Until time.Time // when that ends by itself; zero: not by itself, or not known
}

// The codes of what an entry waits for.
const (
	WhyReview        = "needs_review"
	WhyHeld          = "held"
	WhyApproval      = "approval_required"
	WhyInProgress    = "in_progress"
	WhyAsked         = "being_asked"
	WhyNoDaemon      = "no_daemon"
	WhyRestored      = "database_held"
	WhyNotConfigured = "tool_not_configured"
	WhyPaused        = "tool_paused"
	WhyBreaker       = "breaker_open"
	WhyNotDue        = "not_due"
	WhySuspect       = "suspect_waiting"
	WhySlots         = "slots_full"
	WhyToolSlots     = "tool_slots_full"
	WhyRate          = "rate"
	WhyQueued        = "queued"
)

// standing is what the last pass had to give.
type standing struct {
	shares []share
	free   int
	idle   time.Duration // until another suspect might start
}

// Explain says why an entry does not run, the most general reason first; of one
// that has ended nothing. reason is the entry's own.
func (p *Poller) Explain(ctx context.Context, d entry.Due, reason string) (list []Why, err error) {
	say := func(code, what string, until time.Time) { list = append(list, Why{code, what, until}) }
	switch {
	case d.State.Terminal() && d.State != entry.Dead:
		return nil, nil
	case d.State == entry.Dead:
		say(WhyReview, "given up ("+reason+"): retry or discard it", time.Time{})
		return list, nil
	case d.State == entry.Waiting:
		say(WhyApproval, "it waits for an approval", d.DueAt)
		return list, nil
	case d.State == entry.Claimed || d.State == entry.Sending:
		say(WhyInProgress, "an attempt is under way; its lease is renewed, and lasts at least until then", d.DueAt)
		return list, nil
	case d.Token != 0:
		say(WhyAsked, "the downstream is being asked about it", d.DueAt)
		return list, nil
	case d.DueAt.IsZero():
		say(WhyHeld, "its outcome is unknown ("+reason+"): reconcile, resolve, retry or discard it", time.Time{})
		return list, nil
	}
	err = p.l.Read(ctx, func(v *ledger.View) (err error) {
		list, err = p.delays(v, d)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("explain why an entry waits: %w", err)
	}
	return list, nil
}

// delays of an entry that goes on by itself.
func (p *Poller) delays(v *ledger.View, d entry.Due) (list []Why, err error) {
	say := func(code, what string, until time.Time) { list = append(list, Why{code, what, until}) }
	rows, now := map[string]toolRow{}, p.l.Now()
	if err := read(v, rows); err != nil {
		return nil, err
	}
	stand := p.stand.Load()
	tool, configured := p.Work().Registry.Lookup(d.Tool)
	row := rows[d.Tool]
	var held bool
	if err := v.One(`SELECT restored_at IS NOT NULL FROM outbox_meta WHERE id = 1`).Scan(&held); err != nil {
		return nil, err
	}
	if held {
		say(WhyRestored, "the database was put back from an older copy: nothing is sent or asked until `outboxd db release`", time.Time{})
	}
	if stand == nil {
		say(WhyNoDaemon, "no daemon works on this file, or it has only just started", time.Time{})
	}
	if !configured {
		say(WhyNotConfigured, "its tool is not in the config", time.Time{})
	}
	if !row.pausedAt.IsZero() {
		say(WhyPaused, "its tool is paused since "+row.pausedAt.Format(time.RFC3339)+": "+row.reason, time.Time{})
	}
	if configured && tool.Breaker.Failures > 0 && now.Before(row.breakerUntil) {
		say(WhyBreaker, "the breaker of its tool is open", row.breakerUntil)
	}
	if d.DueAt.After(now) {
		say(WhyNotDue, "it is not due yet: its backoff, its not_before or its place in a review", d.DueAt)
	}
	if len(list) > 0 {
		return list, nil
	}
	return p.queue(v, d, stand)
}

// queue says what an entry that is due waits for.
func (p *Poller) queue(v *ledger.View, d entry.Due, stand *standing) (list []Why, err error) {
	say := func(code, what string) { list = append(list, Why{Code: code, What: what}) }
	if d.Suspect && d.State == entry.Pending && stand.idle > 0 {
		say(WhySuspect, "the process died during its last attempt: such entries are attempted one at a time, and another one is")
	}
	for _, s := range stand.shares {
		switch {
		case s.tool.Name != d.Tool || s.n > 0:
		case stand.free == 0:
			say(WhySlots, "all slots of worker.concurrency are taken")
		case s.wait > 0:
			say(WhyRate, "the rate of its tool allows no more at this moment")
		default:
			say(WhyToolSlots, fmt.Sprintf("%d attempts of its tool run, and its concurrency is %d", s.runs, s.tool.Concurrency))
		}
	}
	var before int
	err = v.One(`SELECT count(*) FROM (SELECT 1 FROM outbox_entry WHERE tool_name = ? AND due_at < ? LIMIT 100000)`,
		d.Tool, d.DueAt).Scan(&before)
	if err == nil && (before > 0 || len(list) == 0) {
		say(WhyQueued, fmt.Sprintf("it is due: %d entries of its tool are before it", before))
	}
	return list, err
}
