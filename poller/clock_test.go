package poller_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

const year = 365 * 24 * time.Hour

// waiting is a file in which entries wait that were decided about while the
// clock was a year ahead.
type waiting struct {
	*world
	wall                         *clock
	kits                         []kit
	failed, fresh, asked, booked int64
}

func aheadByAYear(t *testing.T) *waiting {
	x := &waiting{wall: &clock{}}
	o := &outside{do: func(_ context.Context, c handler.Call, n int) ([]byte, error) {
		if c.Key == "failed" && c.Attempt == 1 {
			return nil, handler.Again(errLost, -1)
		}
		return nil, nil
	}}
	doubtful := &outside{do: always(errLost), ask: func(context.Context, handler.Call, int) handler.Answer {
		return handler.Answer{Found: handler.NotApplied, Code: "http_404"}
	}}
	x.kits = []kit{
		tool("mail", entry.Idempotent, o, every(5*time.Minute)),
		tool("refund", entry.Queryable, doubtful, every(5*time.Minute), func(c *config.Tool) { c.Retry.MaxAttempts = 1 }),
		tool("paused", entry.Idempotent, &outside{}),
	}
	x.wall.set(year)
	x.world = open(t, options{ledger: ledger.Options{Now: x.wall.now}, poll: 10 * time.Second}, x.kits...)
	must(t, x.poller.Pause(t.Context(), "paused", "repair"))
	x.run()
	x.failed = x.accept("mail", "failed")
	x.asked = x.accept("refund", "asked")
	x.fresh = x.accept("paused", "fresh")
	later := ledgertest.Request("mail", "booked")
	later.NotBefore = time.Now().Add(48 * time.Hour) // by the right clock
	x.booked = ledgertest.Accept(t, x.ledger, x.poller.Work().Registry, later).ID
	booked := ledgertest.Request("mail", "booked for much later")
	booked.NotBefore = time.Now().Add(2 * year)
	x.booked = ledgertest.Accept(t, x.ledger, x.poller.Work().Registry, booked).ID
	pass(time.Minute)
	x.expect(x.failed, entry.Pending, "")
	x.expect(x.asked, entry.Unknown, "unproven")
	return x
}

// right demands that everything has its turn within the policy's cap of 10 min.
func (x *waiting) right(w *world) {
	x.t.Helper()
	must(x.t, w.poller.Resume(x.t.Context(), "paused"))
	pass(11 * time.Minute)
	w.expect(x.failed, entry.Delivered, "")
	w.expect(x.fresh, entry.Delivered, "")
	pass(11 * time.Minute) // asked too early, then when it counts
	w.expect(x.asked, entry.Dead, "attempts_exhausted")
	equal(x.t, "not_before stands", time.Until(w.entry(x.booked).DueAt).Round(time.Hour) > year, true)
}

func TestNoRowWaitsLongerThanItsCapBecauseTheClockWasSetBack(t *testing.T) {
	story(t, func(t *testing.T) {
		x := aheadByAYear(t)
		x.wall.set(-year)
		x.right(x.world)
		equal(t, "steps told", fmt.Sprint(x.seen.stepped), fmt.Sprint([]time.Duration{-year}))
	})
}

func TestNoRowWaitsBecauseTheClockWasSetBackWhileNoDaemonRan(t *testing.T) {
	story(t, func(t *testing.T) {
		x := aheadByAYear(t)
		x.crash()
		x.wall.set(-year)
		x.right(x.next(x.kits...).run())
	})
}

func TestLeasesOfADeadProcessEndAlthoughTheClockWasSetBack(t *testing.T) {
	story(t, func(t *testing.T) {
		z := twoProcesses(t, entry.Idempotent)
		var wall clock
		z.b.stop()
		exec(t, foreign(t, z.a.path), `UPDATE outbox_entry SET due_at = due_at + 31536000000`) // as it was claimed
		wall.set(year)
		n := open(t, options{path: z.a.path, ttl: 5 * time.Second, ledger: ledger.Options{Now: wall.now}},
			tool("refund", entry.Idempotent, z.outB, patient)).run()
		pass(time.Second)
		n.expect(z.id, entry.Sending, "")
		wall.set(-year)
		z.answerB <- nil
		pass(20 * time.Minute)
		n.expect(z.id, entry.Delivered, "")
		z.answerA <- nil
	})
}

func TestAClockSetForwardAgesNothing(t *testing.T) {
	story(t, func(t *testing.T) {
		var wall clock
		o := &outside{do: always(handler.Again(errLost, -1))}
		w := open(t, options{ledger: ledger.Options{Now: wall.now}, poll: 10 * time.Second}, tool("mail", entry.Idempotent, o,
			every(10*time.Minute), func(c *config.Tool) { c.Retry.MaxAge = time.Hour })).run()
		id := w.accept("mail", "order-17")
		pass(25 * time.Minute)
		wall.set(5 * time.Hour) // the machine was asleep, or its clock was behind
		pass(25 * time.Minute)
		w.expect(id, entry.Pending, "")
		pass(20 * time.Minute)
		w.expect(id, entry.Dead, "too_old")
		equal(t, "steps told", fmt.Sprint(w.seen.stepped), "[5h0m0s]")
	})
}

func TestALeaseIsNotLostToAClockThatIsSetForward(t *testing.T) {
	story(t, func(t *testing.T) {
		var wall clock
		o := &outside{do: takes(10 * time.Second)}
		w := open(t, options{ledger: ledger.Options{Now: wall.now}, ttl: 3 * time.Second}, tool("bell", entry.Opaque, o, patient)).run()
		id := w.accept("bell", "order-17")
		pass(time.Second)
		wall.set(time.Hour)
		pass(10 * time.Second)
		w.expect(id, entry.Delivered, "")
		equal(t, "requests", len(o.called()), 1)
	})
}
