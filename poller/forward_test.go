package poller_test

import (
	"context"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
)

// timedOut is a queryable tool of whose first attempt nothing is known but that
// its 10 s are over, and which has no effect to report. "Not applied" counts 10
// minutes later.
func timedOut() (*outside, kit) {
	o := &outside{ask: func(context.Context, handler.Call, int) handler.Answer {
		return handler.Answer{Found: handler.NotApplied, Code: "http_404"}
	}}
	o.outcome = func(_ handler.Call, n int) handler.Outcome {
		if n > 1 {
			return handler.Outcome{Observed: handler.Succeeded, Code: "http_200"}
		}
		<-time.After(10 * time.Second)
		return handler.Outcome{Observed: handler.MayHaveHappened, Code: "timeout"}
	}
	return o, tool("refund", entry.Queryable, o, every(5*time.Second), func(c *config.Tool) { c.Query.NotBefore = 10 * time.Minute })
}

// secondSend lets time go by and returns when the second request left after the
// first.
func (o *outside) secondSend(t *testing.T) time.Duration {
	t.Helper()
	pass(30 * time.Minute)
	if len(o.called()) != 2 {
		t.Fatalf("requests: got %d, want 2", len(o.called()))
	}
	return o.gaps()[0]
}

func TestAClockSetForwardDoesNotMakeNotAppliedCountEarly(t *testing.T) {
	for name, poll := range map[string]time.Duration{
		"noticed at once":                 time.Second,
		"an answer comes before a notice": time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(t *testing.T) {
				var wall clock
				o, k := timedOut()
				w := open(t, options{ledger: ledger.Options{Now: wall.now}, poll: poll}, k).run()
				id := w.accept("refund", "order-17")
				pass(20 * time.Second)
				w.expect(id, entry.Unknown, "unproven")
				wall.set(2 * time.Hour)
				pass(2 * time.Second)
				must(t, w.poller.Reconcile(t.Context(), id))
				if got := o.secondSend(t); got < 10*time.Minute {
					t.Errorf("sent again after %v", got)
				}
				w.expect(id, entry.Delivered, "")
			})
		})
	}
}

func TestAClockSetForwardWhileNoDaemonRanDoesNotMakeNotAppliedCountEarly(t *testing.T) {
	story(t, func(t *testing.T) {
		var wall clock
		o, k := timedOut()
		w := open(t, options{ledger: ledger.Options{Now: wall.now}}, k).run()
		id := w.accept("refund", "order-17")
		pass(20 * time.Second)
		w.crash()
		wall.set(2 * time.Hour)
		n := w.next(k).run()
		if got := o.secondSend(t); got < 10*time.Minute {
			t.Errorf("sent again after %v", got)
		}
		n.expect(id, entry.Delivered, "")
	})
}

func TestACommandBesideNoDaemonDoesNotCountNotAppliedEarlyEither(t *testing.T) {
	story(t, func(t *testing.T) {
		var wall clock
		o, k := timedOut()
		w := open(t, options{ledger: ledger.Options{Now: wall.now}}, k).run()
		id := w.accept("refund", "order-17")
		pass(20 * time.Second)
		w.crash()
		wall.set(2 * time.Hour)
		command := open(t, options{path: w.path, ledger: ledger.Options{Now: wall.now}}, k)
		must(t, command.poller.Reconcile(t.Context(), id))
		command.expect(id, entry.Unknown, "unproven")
		n := w.next(k).run()
		if got := o.secondSend(t); got < 10*time.Minute {
			t.Errorf("sent again after %v", got)
		}
		n.expect(id, entry.Delivered, "")
	})
}
