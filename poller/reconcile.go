package poller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// ErrNoQuery says that the tool of the operation cannot be asked.
var ErrNoQuery = errors.New("tool has no status query")

// Reconcile asks about an unknown operation now, due or held, and returns when
// the answer is recorded. Of one tool it asks as many at a time as the tool's
// concurrency allows. It answers ErrNoQuery where the tool cannot be asked and
// entry.ErrStale where there is nothing to ask, somebody is asking, or Run is
// ending, and a *guard.Refusal where the row is not what was accepted or the tool
// means something else by now. ctx bounds the time until the question is put.
func (p *Poller) Reconcile(ctx context.Context, id int64) error {
	work, leave, err := p.enlist(ctx)
	if err != nil {
		return err
	}
	defer leave()
	tool, err := p.toolOf(ctx, id)
	if err != nil {
		return err
	}
	turns := p.gate.turns(tool)
	if err := turns.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait for other questions: %w", err)
	}
	defer turns.Release(1)
	c, err := p.forced(ctx, id)
	if err != nil {
		return err
	}
	p.hold(work, c)
	p.Wake() // it may be due again before anybody looks
	return nil
}

// gate is where what was not started by Run joins it.
type gate struct {
	mu      sync.Mutex // guards what follows
	work    context.Context
	running bool
	closed  bool
	resumed bool
	byHand  map[string]byHand
	lost    error // outcomes that the file did not take; nil: none
}

// byHand bounds the questions about one tool that people put.
type byHand struct {
	size int
	*semaphore.Weighted
}

func (g *gate) turns(t *contract.Tool) *semaphore.Weighted {
	g.mu.Lock()
	defer g.mu.Unlock()
	b, ok := g.byHand[t.Name]
	if !ok || b.size != t.Concurrency {
		b = byHand{t.Concurrency, semaphore.NewWeighted(int64(t.Concurrency))}
		if g.byHand == nil {
			g.byHand = map[string]byHand{}
		}
		g.byHand[t.Name] = b
	}
	return b.Weighted
}

// enlist makes the caller part of what a drain waits for, until leave. What it
// does ends with Run's work or, where nothing runs, by itself.
func (p *Poller) enlist(ctx context.Context) (work context.Context, leave func(), err error) {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	if p.gate.closed {
		return nil, nil, fmt.Errorf("put a question while ending: %w", entry.ErrStale)
	}
	if !p.gate.resumed {
		if _, err := p.resume(ctx); err != nil {
			return nil, nil, err
		}
		p.gate.resumed = true
	}
	work = context.WithoutCancel(ctx)
	if p.gate.running {
		work = p.gate.work
	}
	p.attempts.Add(1)
	return work, p.attempts.Done, nil
}

// close lets nobody join any more: a drain has begun.
func (p *Poller) close() {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.gate.closed = true
	p.stopping.Store(true)
}

func (p *Poller) toolOf(ctx context.Context, id int64) (*contract.Tool, error) {
	c := claim{work: p.Work()}
	err := p.l.Read(ctx, func(v *ledger.View) error {
		ops, err := intake.Load(v, []int64{id})
		if err != nil {
			return err
		}
		if c.op = ops[id]; c.op == nil {
			return entry.ErrNotFound
		}
		return c.askable()
	})
	if err != nil {
		return nil, fmt.Errorf("read what to ask about: %w", err)
	}
	return c.tool, nil
}

func (p *Poller) forced(ctx context.Context, id int64) (c claim, err error) {
	err = p.l.Write(ctx, func(tx *ledger.Tx) error {
		c = claim{work: p.Work()}
		if err := tx.Held(); err != nil {
			return err
		}
		ops, err := intake.Load(tx, []int64{id})
		if err != nil {
			return err
		}
		if c.op = ops[id]; c.op == nil {
			return entry.ErrNotFound
		}
		if err := c.askable(); err != nil {
			return err
		}
		if c.due, err = entry.Get(tx, id); err != nil {
			return err
		}
		token, err := tx.Tokens(1)
		if err != nil {
			return err
		}
		l := entry.Lease{Token: token, Until: p.keeper.Until(tx.Now())}
		c.held, err = entry.Question(tx, c.due, l, true)
		return err
	})
	if err != nil {
		return c, fmt.Errorf("take the question: %w", err)
	}
	return c, nil
}

func (c *claim) askable() error {
	var ok bool
	var tool *contract.Tool
	if tool, ok = c.work.Registry.Lookup(c.op.Scope.Tool); !ok || c.work.Handlers[tool.Name].Asker == nil {
		return ErrNoQuery
	}
	c.tool = tool
	return guard.Check(c.op, tool)
}
