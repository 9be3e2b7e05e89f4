package poller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// Stop is where a dispatch stops on purpose, leaving the file as a crash would.
type Stop string

// The places. The zero Stop is none.
const (
	AfterClaim  Stop = "after_claim"             // claimed, nothing handed over
	AfterEffect Stop = "after_downstream_commit" // the downstream has answered, nothing is recorded
)

// ErrNoGap says that a local tool's effect and receipt are one commit: there is
// nothing to stop between.
var ErrNoGap = errors.New("effect and receipt of a local tool are one commit")

// Running reports whether Run is at work: then it does what is due.
func (p *Poller) Running() bool {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	return p.gate.running
}

// Dispatch makes one attempt of a pending operation that is due, where Run is not at
// work, and returns when its outcome is recorded or, with a Stop, when it is there.
// entry.ErrStale says that it is not to be attempted now: its state, its tool's pause
// or a limit. ctx bounds the time until it is claimed.
func (p *Poller) Dispatch(ctx context.Context, id int64, stop Stop) error {
	work, leave, err := p.enlist(ctx)
	if err != nil {
		return err
	}
	defer leave()
	var c claim
	err = p.l.Write(ctx, func(tx *ledger.Tx) (err error) {
		c, err = p.single(tx, id, stop)
		return err
	})
	if err != nil {
		return fmt.Errorf("claim operation: %w", err)
	}
	switch stop {
	case AfterClaim:
		return nil
	case AfterEffect:
		return p.untilEffect(work, c)
	}
	p.hold(work, c)
	return p.outcome()
}

// outcome is why an outcome was not recorded.
func (p *Poller) outcome() error {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	return p.gate.lost
}

// single claims one operation. Its lease outlasts the attempt: nobody renews it.
func (p *Poller) single(tx *ledger.Tx, id int64, stop Stop) (claim, error) {
	c := claim{work: p.Work(), since: time.Now()}
	ops, err := intake.Load(tx, []int64{id})
	if err != nil {
		return c, err
	}
	if c.op = ops[id]; c.op == nil {
		return c, entry.ErrNotFound
	}
	var known bool
	if c.tool, known = c.work.Registry.Lookup(c.op.Scope.Tool); !known {
		return c, ErrUnknownTool
	}
	if c.op.Effect == entry.Local && stop == AfterEffect {
		return c, ErrNoGap
	}
	if c.due, err = entry.Get(tx, id); err != nil {
		return c, err
	}
	if may, err := p.mayAttempt(tx, c.due, c.tool); err != nil || !may {
		return c, errors.Join(entry.ErrStale, err)
	}
	token, err := tx.Tokens(1)
	if err != nil {
		return c, err
	}
	last := over(tx.Now(), c.tool).Add(c.tool.GuardTime)
	until := last.Add(commitSlack)
	if ttl := p.keeper.Until(tx.Now()); ttl.After(until) {
		until = ttl
	}
	c.held, err = entry.Take(tx, c.due, entry.Lease{Token: token, Until: until, Over: last}, c.op.Effect.Marked())
	return c, err
}

func (p *Poller) mayAttempt(tx *ledger.Tx, d entry.Due, tool *contract.Tool) (bool, error) {
	rows := map[string]toolRow{}
	if err := read(tx, rows); err != nil {
		return false, err
	}
	row := rows[tool.Name]
	return d.State == entry.Pending && row.pausedAt.IsZero() && !tx.Now().Before(row.breakerUntil) &&
		p.limits(tool, tx.Now(), row.excused).AtClaim(d) == "", nil
}

// untilEffect makes the attempt and forgets what came of it.
func (p *Poller) untilEffect(ctx context.Context, c claim) error {
	if err := p.allowed(ctx, c); err != nil {
		p.settle(c, refused(err))
		return p.outcome()
	}
	if c.held.State == entry.Claimed {
		if err := p.mark(ctx, &c); err != nil {
			return fmt.Errorf("mark operation: %w", err)
		}
	}
	limited, cancel := context.WithTimeout(ctx, c.tool.Timeout)
	defer cancel()
	if out := p.call(limited, c); out.Observed == handler.NotSent {
		p.settle(c, observation{Outcome: out}) // nothing was handed over: there is nothing to lose
	}
	return p.outcome()
}
