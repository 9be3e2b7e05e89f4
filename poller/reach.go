package poller

import (
	"context"
	"reflect"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/backoff"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// A pass spends so much time on entries that wait by an older policy, and goes on
// at the next one; a closure moves so many.
const (
	reachTime  = 50 * time.Millisecond
	reachBatch = 500
)

// reach brings a changed backoff to the entries that wait already. It belongs to
// Run's goroutine.
type reach struct {
	work  *Work                     // whose policies are known
	known map[string]backoff.Policy // by tool
	open  []rescheduling
}

// rescheduling is a tool whose policy was changed, and how far that has come.
type rescheduling struct {
	tool  *contract.Tool
	from  []backoff.Policy // by any of these the entries may wait
	after entry.Retrying
}

// reschedule has the entries that wait by an older policy wait by today's, from the
// same instant on. What cannot be done now is tried again at the next pass.
func (p *Poller) reschedule(ctx context.Context) {
	if w := p.Work(); w != p.reach.work {
		p.reach.compare(w, p.l.Now())
	}
	began := time.Now()
	for len(p.reach.open) > 0 {
		if time.Since(began) > reachTime {
			p.Wake()
			return
		}
		done, err := p.rescheduleSome(ctx, &p.reach.open[0])
		if err != nil {
			if ctx.Err() == nil {
				p.log.Warn("entries do not wait by the new backoff yet", zap.Error(err))
			}
			return
		}
		if done {
			p.reach.open = p.reach.open[1:]
		}
	}
}

// compare notes which tools have another policy than before.
func (r *reach) compare(w *Work, now time.Time) {
	first := r.work == nil
	if r.work = w; first {
		r.known = map[string]backoff.Policy{}
	}
	for _, name := range w.Registry.Names() {
		tool, _ := w.Registry.Lookup(name)
		old, had := r.known[name]
		r.known[name] = tool.Retry.Backoff
		if had && !reflect.DeepEqual(old, tool.Retry.Backoff) {
			r.begin(tool, old, now)
		}
	}
}

func (r *reach) begin(tool *contract.Tool, old backoff.Policy, now time.Time) {
	begun := rescheduling{tool: tool, from: []backoff.Policy{old}, after: entry.Retrying{DueAt: now}}
	for i, other := range r.open {
		if other.tool.Name == tool.Name {
			begun.from = append(begun.from, other.from...)
			r.open[i] = begun
			return
		}
	}
	r.open = append(r.open, begun)
}

// rescheduleSome goes on with one tool; done says that there is no more of it.
func (p *Poller) rescheduleSome(ctx context.Context, r *rescheduling) (done bool, err error) {
	var all []entry.Retrying
	err = p.l.Read(ctx, func(v *ledger.View) (err error) {
		all, err = entry.AllRetrying(v, r.tool.Name, r.after, reachBatch)
		return err
	})
	if err != nil || len(all) == 0 {
		return true, err
	}
	err = p.l.Write(ctx, func(tx *ledger.Tx) error {
		for _, w := range all {
			at := r.due(w)
			if at.IsZero() {
				continue
			}
			if at.Before(tx.Now()) {
				at = tx.Now()
			}
			if err := entry.Reschedule(tx, w, at); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		r.after = all[len(all)-1]
	}
	return false, err
}

// due is when an entry is due by today's policy; zero: as before. An entry that
// waits since the downstream asked for it (Retry-After) goes on doing so, within the
// cap of today.
func (r *rescheduling) due(w entry.Retrying) time.Time {
	count := w.Failures
	if w.State == entry.Unknown {
		count = max(w.Queries, 1)
	}
	wait, seed := w.DueAt.Sub(w.Since), backoff.Seed(w.ID, w.Attempts)
	for _, old := range r.from {
		if (wait - old.Delay(count, seed)).Abs() < 2*time.Millisecond { // stored in whole ones
			return w.Since.Add(r.tool.Retry.Backoff.Delay(count, seed))
		}
	}
	if most := longest(r.tool); w.State == entry.Pending && wait > most {
		return w.Since.Add(most)
	}
	return time.Time{}
}
