package poller_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledgertest"
)

// always answers with err.
func always(err error) func(context.Context, handler.Call, int) ([]byte, error) {
	return func(context.Context, handler.Call, int) ([]byte, error) { return nil, err }
}

// every waits exactly d after each failure.
func every(d time.Duration) func(*config.Tool) {
	return func(c *config.Tool) {
		c.Retry.Backoff, c.Retry.Initial, c.Retry.Max = "constant", d, max(d, 10*time.Minute)
	}
}

func TestALimitEndsTheAttemptsAfterExactlySoManyRequests(t *testing.T) {
	again := handler.Again(errLost, -1)
	three := func(c *config.Tool) { c.Retry.MaxAttempts = 3 }
	hour := func(c *config.Tool) { c.Retry.MaxAge = time.Hour }
	window := func(c *config.Tool) { c.KeyWindow = 90 * time.Second }
	for _, c := range []struct {
		name     string
		effect   entry.Effect
		do       func(context.Context, handler.Call, int) ([]byte, error)
		wait     time.Duration
		change   func(*config.Tool)
		requests int
		state    entry.State
		reason   string
	}{
		{"always 403", entry.Idempotent, always(handler.Reject(errLost)), time.Second, three, 1, entry.Dead, "rejected"},
		{"always 403, opaque", entry.Opaque, always(handler.Reject(errLost)), time.Second, three, 1, entry.Dead, "rejected"},
		{"always 500", entry.Idempotent, always(errLost), time.Second, three, 3, entry.Unknown, "attempts_exhausted"},
		{"always 429", entry.Idempotent, always(again), time.Second, three, 3, entry.Dead, "attempts_exhausted"},
		{"always 429, queryable", entry.Queryable, always(again), time.Second, three, 3, entry.Dead, "attempts_exhausted"},
		{"always refused, opaque", entry.Opaque, always(handler.Unsent(errLost)), time.Second, three, 3, entry.Dead, "attempts_exhausted"},
		{"too old", entry.Idempotent, always(again), 25 * time.Minute, hour, 3, entry.Dead, "too_old"},
		{"too old, unproven", entry.Idempotent, always(errLost), 25 * time.Minute, hour, 3, entry.Unknown, "too_old"},
		{"key window", entry.Idempotent, always(errLost), time.Minute, window, 2, entry.Unknown, "key_window_passed"},
		{"key window of nothing unproven", entry.Idempotent, always(again), time.Minute, func(c *config.Tool) { window(c); three(c) },
			3, entry.Dead, "attempts_exhausted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			story(t, func(t *testing.T) {
				o := &outside{do: c.do, ask: neverAsked(t)}
				w := open(t, options{poll: 5 * time.Minute}, tool("refund", c.effect, o, every(c.wait), c.change)).run()
				id := w.accept("refund", "order-17")
				pass(2 * time.Hour)
				w.expect(id, c.state, c.reason)
				w.held(id)
				equal(t, "requests", len(o.called()), c.requests)
				equal(t, "evidence", len(w.evidence(id)), c.requests)
				identical(t, o.called())
			})
		})
	}
}

// Attempt 1 takes effect and times out; the others do not even get there.
func TestTimedOutThenRefusedIsUnknownNotDead(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: func(ctx context.Context, _ handler.Call, n int) ([]byte, error) {
			if n == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, handler.Unsent(errors.New("connection refused"))
		}}
		w := open(t, options{poll: time.Minute}, tool("mail", entry.Idempotent, o)).run()
		id := w.accept("mail", "order-17")
		pass(3 * time.Hour)
		r := w.expect(id, entry.Unknown, "attempts_exhausted")
		w.held(id)
		equal(t, "requests", len(o.called()), 12)
		if r.UnprovenSince.IsZero() {
			t.Error("the first send is no longer unproven")
		}
	})
}

func TestBackoffGrowsToItsCapAndRetryAfterIsHonouredWithinIt(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: func(_ context.Context, _ handler.Call, n int) ([]byte, error) {
			switch n {
			case 1, 2, 3, 4:
				return nil, handler.Again(errLost, -1)
			case 5:
				return nil, handler.Again(errLost, 7*time.Second) // longer than the backoff
			case 6:
				return nil, handler.Again(errLost, time.Second) // shorter
			case 7:
				return nil, handler.Again(errLost, 24*time.Hour) // absurd
			}
			return nil, nil
		}}
		w := open(t, options{}, tool("mail", entry.Idempotent, o, func(c *config.Tool) {
			c.Retry.Initial, c.Retry.Factor, c.Retry.Max = time.Second, 2, 5*time.Second
		})).run()
		id := w.accept("mail", "order-17")
		pass(2 * time.Minute)
		w.expect(id, entry.Delivered, "")
		var got []time.Duration
		for _, g := range o.gaps() {
			got = append(got, g.Round(100*time.Millisecond))
		}
		s := time.Second
		equal(t, "waits", fmt.Sprint(got), fmt.Sprint([]time.Duration{s, 2 * s, 4 * s, 5 * s, 5 * s, 5 * s, 5 * s}))
	})
}

func TestAReloadChangesWhatIsDecidedNextForARowThatWaits(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: always(handler.Again(errLost, -1))}
		w := open(t, options{poll: time.Minute}, tool("mail", entry.Idempotent, o, every(time.Minute))).run()
		id := w.accept("mail", "order-17")
		pass(30 * time.Second)
		if err := w.poller.Swap(t.Context(), work(t, tool("mail", entry.Idempotent, o, every(5*time.Minute)))); err != nil {
			t.Fatal(err)
		}
		pass(4 * time.Minute)
		equal(t, "requests", len(o.called()), 1)
		pass(6 * time.Minute)
		equal(t, "requests", len(o.called()), 3)
		equal(t, "wait that the new policy reached", o.gaps()[0].Round(time.Second), 5*time.Minute)
		equal(t, "wait by the new policy", o.gaps()[1].Round(time.Second), 5*time.Minute)

		if err := w.poller.Swap(t.Context(), work(t, tool("mail", entry.Idempotent, o, every(5*time.Minute), func(c *config.Tool) { c.Retry.MaxAttempts = 2 }))); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Minute)
		w.expect(id, entry.Dead, "attempts_exhausted")
		equal(t, "requests", len(o.called()), 3)
		w.seen.mu.Lock()
		defer w.seen.mu.Unlock()
		equal(t, "told of three failures and of the end", len(w.seen.settled), 4)
	})
}

func TestAReloadReachesTheDecisionAboutAnAttemptInFlight(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: func(context.Context, handler.Call, int) ([]byte, error) {
			<-time.After(5 * time.Second)
			return nil, handler.Again(errLost, -1)
		}}
		w := open(t, options{poll: time.Minute}, tool("mail", entry.Idempotent, o, every(time.Minute))).run()
		id := w.accept("mail", "order-17")
		pass(time.Second)
		must(t, w.poller.Swap(t.Context(), work(t, tool("mail", entry.Idempotent, o, every(9*time.Minute)))))
		pass(5 * time.Second)
		r := w.expect(id, entry.Pending, "")
		equal(t, "wait", time.Until(r.DueAt).Round(time.Minute), 9*time.Minute)
	})
}

func TestWhatTheGuardRefusesNeverLeavesAndIsTriedAgain(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{ask: neverAsked(t)}
		now := tool("refund", entry.Queryable, o, every(time.Minute))
		other := tool("refund", entry.Queryable, o, every(time.Minute), func(c *config.Tool) {
			c.Revisions.Effect, c.Retry.MaxAttempts = "v2", 3
		})
		w := open(t, options{}, now).run()
		must(t, w.poller.Pause(t.Context(), "refund", "reload"))
		first := w.accept("refund", "order-17")
		must(t, w.poller.Swap(t.Context(), work(t, other)))
		must(t, w.poller.Resume(t.Context(), "refund"))
		pass(70 * time.Second)
		r := w.expect(first, entry.Pending, "")
		equal(t, "failures", r.Failures, 2)
		must(t, w.poller.Swap(t.Context(), work(t, now))) // the contract is again what it was
		pass(time.Minute)
		w.expect(first, entry.Delivered, "")
		equal(t, "evidence", join(w.evidence(first)), "blocked not_sent contract_drift; blocked not_sent contract_drift")

		must(t, w.poller.Pause(t.Context(), "refund", "reload"))
		second := w.accept("refund", "order-18")
		must(t, w.poller.Swap(t.Context(), work(t, other)))
		must(t, w.poller.Resume(t.Context(), "refund"))
		pass(5 * time.Minute)
		w.expect(second, entry.Dead, "contract_drift")
		equal(t, "requests", len(o.called()), 1)
	})
}

func TestTimeInWhichAToolWasPausedAgesNothing(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: always(handler.Again(errLost, -1))}
		w := open(t, options{poll: time.Minute}, tool("mail", entry.Idempotent, o, every(10*time.Minute),
			func(c *config.Tool) { c.Retry.MaxAge = time.Hour })).run()
		id := w.accept("mail", "order-17")
		pass(5 * time.Minute)
		must(t, w.poller.Pause(t.Context(), "mail", "repair"))
		pass(5 * time.Hour)
		equal(t, "requests", len(o.called()), 1)
		must(t, w.poller.Resume(t.Context(), "mail"))
		pass(40 * time.Minute)
		w.expect(id, entry.Pending, "")
		pass(30 * time.Minute)
		w.expect(id, entry.Dead, "too_old")
	})
}

func TestAPauseThatStillLastsAgesNothing(t *testing.T) {
	story(t, func(t *testing.T) {
		answer := make(chan error)
		o := &outside{do: func(_ context.Context, _ handler.Call, n int) ([]byte, error) {
			if n == 1 {
				return nil, handler.Again(errLost, -1)
			}
			return nil, <-answer
		}}
		w := open(t, options{poll: 5 * time.Minute, ttl: time.Hour}, tool("mail", entry.Idempotent, o, func(c *config.Tool) {
			c.Timeout, c.Retry.MaxAge = 24*time.Hour, time.Hour
		})).run()
		id := w.accept("mail", "order-17")
		pass(10 * time.Second)
		must(t, w.poller.Pause(t.Context(), "mail", "repair"))
		pass(2 * time.Hour)
		answer <- handler.Again(errLost, -1)
		synctest.Wait()
		w.expect(id, entry.Pending, "")
	})
}

func TestTimeInWhichNoDaemonRanAgesNothing(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: always(handler.Again(errLost, -1))}
		mail := tool("mail", entry.Idempotent, o, every(10*time.Minute), func(c *config.Tool) { c.Retry.MaxAge = time.Hour })
		w := open(t, options{poll: time.Minute}, mail).run()
		id := w.accept("mail", "order-17")
		pass(25 * time.Minute)
		w.crash()
		<-time.After(5 * time.Hour)
		n := w.next(mail).run()
		pass(30 * time.Minute)
		n.expect(id, entry.Pending, "")
		pass(time.Hour)
		n.expect(id, entry.Dead, "too_old")
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// 21 are in flight when the process ends. One of them is why, each time.
func TestPoisonEndsInACrashLoopAndItsBystandersAreDelivered(t *testing.T) {
	for _, effect := range []entry.Effect{entry.Idempotent, entry.Queryable} {
		t.Run(string(effect), func(t *testing.T) {
			story(t, func(t *testing.T) { poison(t, effect) })
		})
	}
}

// poisoned: an idempotent one may have taken effect before it took the process
// along, of a queryable one the downstream says that it did not.
var poisoned = map[entry.Effect]entry.State{entry.Idempotent: entry.Unknown, entry.Queryable: entry.Dead}

func poison(t *testing.T, effect entry.Effect) {
	crashes := make(chan struct{}, 1)
	first := true
	o := &outside{do: func(ctx context.Context, c handler.Call, _ int) ([]byte, error) {
		if c.Key == "key-7" {
			crashes <- struct{}{}
		}
		if first || c.Key == "key-7" {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return nil, nil
	}}
	o.ask = func(context.Context, handler.Call, int) handler.Answer {
		return handler.Answer{Found: handler.NotApplied, Code: "http_404"}
	}
	k := tool("mail", effect, o, func(c *config.Tool) { c.Concurrency, c.Timeout = 40, time.Second })
	w := open(t, options{concurrency: 40}, k).run()
	ids := w.acceptMany("mail", 21)
	ids = append(ids, w.accept("mail", "opaque"))
	synctest.Wait()
	<-crashes
	w.crash()
	first = false

	n := 0
	for ; n < 10; n++ {
		w = w.next(k).run()
		w.accept("mail", fmt.Sprint("fresh-", n))
		if !within(20*time.Second, crashes) {
			break
		}
		w.crash()
	}
	equal(t, "crashes as a suspect", n, 3)
	for i, id := range ids {
		if i == 7 {
			r := w.expect(id, poisoned[effect], "crash_loop")
			equal(t, "lapses of the poison", r.Lapses, 3)
			continue
		}
		if r := w.expect(id, entry.Delivered, ""); r.Lapses != 0 || r.Suspect {
			t.Errorf("bystander %d has %d lapses, suspect %v", id, r.Lapses, r.Suspect)
		}
	}
	equal(t, "delivered", w.states("mail")[entry.Delivered], 21+n+1)
}

// within lets up to d go by until something happens.
func within(d time.Duration, something <-chan struct{}) bool {
	for ; d > 0; d -= 100 * time.Millisecond {
		pass(100 * time.Millisecond)
		select {
		case <-something:
			return true
		default:
		}
	}
	return false
}

// A handler that runs for long does not keep the other suspects waiting for long.
func TestAnotherSuspectStartsOnceOneHasRunForFiveSeconds(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: takes(time.Minute)}
		k := tool("mail", entry.Idempotent, o, patient)
		w := open(t, options{}, k).run()
		ids := w.acceptMany("mail", 3)
		pass(time.Second)
		w.crash()
		before := len(o.called())
		w = w.next(k).run()
		pass(4 * time.Second)
		equal(t, "suspects after 4 s", len(o.called())-before, 1)
		fresh := ledgertest.Accept(t, w.ledger, w.poller.Work().Registry, ledgertest.Request("mail", "fresh"))
		w.poller.Wake()
		pass(500 * time.Millisecond)
		w.expect(fresh.ID, entry.Sending, "")
		pass(time.Second)
		equal(t, "suspects and one more after 5.5 s", len(o.called())-before, 3)
		pass(2 * time.Minute)
		for _, id := range ids {
			w.expect(id, entry.Delivered, "")
		}
	})
}
