package poller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// The back-off of a drain of outbox_intake that fails. Nothing shortens it: what
// wakes the poller may be what the failure itself wrote.
const (
	undrainedFirst = 250 * time.Millisecond
	undrainedMost  = 30 * time.Second
	undrainedLong  = 10 * time.Second // after which Undrained says so
)

// ErrUndrained says that rows in outbox_intake become no operations.
var ErrUndrained = errors.New("rows in outbox_intake cannot be taken in: see what the application's triggers and constraints do to the outbox tables")

// undrained is what the poller knows of a drain that fails. What mu does not guard
// belongs to the goroutine of Run.
type undrained struct {
	fails int       // one after the other, without a row that moved
	next  time.Time // no drain before it, monotonic
	why   string    // as it was logged; "": it does not fail

	mu    sync.Mutex // guards since
	since time.Time  // monotonic; zero: it does not fail
}

// Undrained is ErrUndrained once rows have stayed in outbox_intake for some time
// although their tools are configured, and nil otherwise.
func (p *Poller) Undrained() error {
	u := &p.undrained
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since.IsZero() || time.Since(u.since) < undrainedLong {
		return nil
	}
	return ErrUndrained
}

// rests: how long until the next drain; 0: now.
func (u *undrained) rests() time.Duration { return max(0, time.Until(u.next)) }

// look finds work in one transaction, with the drain where it is time for one.
// Where something of that is refused, a second one is careful, and leaves out a
// drain that may have destroyed the first.
func (p *Poller) look(ctx context.Context, f *finder) error {
	err := p.l.Write(ctx, f.look)
	if err == nil || environment(err) || ctx.Err() != nil {
		return err
	}
	if f.drains && f.undrained == nil {
		f.undrained = err
	}
	f.drains, f.careful = false, true
	return p.l.Write(ctx, f.look)
}

// environment: it is the file, or the disk, that takes nothing, whatever is written.
func environment(err error) bool {
	code := ledger.Code(err)
	return code != "" && ledger.Refusal(err) == ""
}

// drained goes on where the drain of a pass failed: row by row. The claims of that
// pass have started by now.
func (p *Poller) drained(ctx context.Context, f *finder) {
	u := &p.undrained
	if f.undrained == nil {
		if f.drains && u.why != "" {
			p.log.Info("intake is drained again")
			u.end()
		}
		return
	}
	sum, err := intake.Apart(ctx, p.l, p.Work().Registry, intakeBatch)
	if ctx.Err() != nil {
		return
	}
	moved := sum.Moved() > 0
	if moved {
		p.Wake()
	}
	if err == nil && f.refused != nil {
		u.end() // it was not the intake
		return
	}
	if err == nil && moved {
		return // the next pass finds out whether that was all
	}
	why := describe(errors.Join(err, f.undrained))
	if why != u.why {
		p.log.Warn("intake not drained", zap.String("error", why))
	}
	u.failed(why, moved)
}

// describe says why without values of rows, which a trigger's own words may hold.
func describe(err error) string {
	if why := ledger.Refusal(err); why != "" {
		return "a statement on the outbox tables: " + why
	}
	return fmt.Sprint(err)
}

func (u *undrained) failed(why string, moved bool) {
	if u.fails++; moved {
		u.fails = 1
	}
	wait := undrainedFirst << min(u.fails-1, 10)
	u.next, u.why = time.Now().Add(min(wait, undrainedMost)), why
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since.IsZero() {
		u.since = time.Now()
	}
}

func (u *undrained) end() {
	u.fails, u.next, u.why = 0, time.Time{}, ""
	u.mu.Lock()
	defer u.mu.Unlock()
	u.since = time.Time{}
}
