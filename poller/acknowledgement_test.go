package poller_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/poller"
)

var errLost = errors.New("connection reset")

// lostOnce takes effect and loses its first acknowledgement.
func lostOnce(effects *int) func(context.Context, handler.Call, int) ([]byte, error) {
	return func(_ context.Context, _ handler.Call, n int) ([]byte, error) {
		if n == 1 {
			*effects++
			return nil, errLost
		}
		return []byte(`{"again":true}`), nil // it deduplicates on the key
	}
}

func TestLostAcknowledgementOfIdempotentIsSentAgainWithTheSameKey(t *testing.T) {
	story(t, func(t *testing.T) {
		effects := 0
		o := &outside{do: lostOnce(&effects)}
		w := open(t, options{}, tool("mail", entry.Idempotent, o)).run()
		id := w.accept("mail", "order-17")
		pass(5 * time.Second)

		r := w.expect(id, entry.Delivered, "")
		equal(t, "attempts, failures", [2]int{r.Attempts, r.Failures}, [2]int{2, 1})
		equal(t, "receipt", w.receipt(id), `fresh 2 {"again":true}`)
		equal(t, "evidence", join(w.evidence(id)), "outcome may_have_happened error")
		identical(t, o.called())
		equal(t, "calls", len(o.called()), 2)
		equal(t, "wait", o.gaps()[0].Round(10*time.Millisecond), time.Second)
	})
}

func TestLostAcknowledgementOfQueryableIsReconciledWithoutASecondRequest(t *testing.T) {
	story(t, func(t *testing.T) {
		effects := 0
		o := &outside{do: lostOnce(&effects)}
		o.ask = func(_ context.Context, c handler.Call, _ int) handler.Answer {
			return handler.Answer{Found: handler.Applied, Code: "http_200", Result: []byte(`{"refund":"r-9"}`)}
		}
		w := open(t, options{}, tool("refund", entry.Queryable, o)).run()
		id := w.accept("refund", "order-17")
		pass(5 * time.Second)

		w.expect(id, entry.Delivered, "")
		equal(t, "receipt", w.receipt(id), `receipt_reconciled 1 {"refund":"r-9"}`)
		equal(t, "calls, asks", [2]int{len(o.called()), len(o.asked())}, [2]int{1, 1})
		if call, ask := o.called()[0], o.asked()[0]; call.WireKey != ask.WireKey || ask.Token <= call.Token {
			t.Errorf("asked about %s with token %d after %s with token %d", ask.WireKey, ask.Token, call.WireKey, call.Token)
		}
	})
}

func TestLostAcknowledgementOfOpaqueIsUnknownAndWaitsForAPerson(t *testing.T) {
	story(t, func(t *testing.T) {
		effects := 0
		o := &outside{do: lostOnce(&effects)}
		w := open(t, options{poll: time.Minute}, tool("bell", entry.Opaque, o)).run()
		id := w.accept("bell", "order-17")
		pass(2 * time.Hour)

		w.expect(id, entry.Unknown, "unproven")
		w.held(id)
		equal(t, "calls", len(o.called()), 1)
		if err := w.poller.Reconcile(t.Context(), id); !errors.Is(err, poller.ErrNoQuery) {
			t.Errorf("reconcile answered %v, want %v", err, poller.ErrNoQuery)
		}
	})
}

func TestNotAppliedCountsOnlyOnceTheAttemptIsOver(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{}
		began := time.Now()
		o.outcome = func(_ handler.Call, n int) handler.Outcome {
			if n > 1 {
				return handler.Outcome{Observed: handler.Succeeded, Code: "http_200"}
			}
			<-time.After(10 * time.Second) // nothing is ever heard
			return handler.Outcome{Observed: handler.MayHaveHappened, Code: "timeout"}
		}
		o.ask = func(context.Context, handler.Call, int) handler.Answer {
			return handler.Answer{Found: handler.NotApplied, Code: "http_404"}
		}
		w := open(t, options{poll: time.Minute}, tool("refund", entry.Queryable, o, func(c *config.Tool) {
			c.Query.NotBefore = 20 * time.Second
		})).run()
		id := w.accept("refund", "order-17")

		pass(15 * time.Second)
		w.expect(id, entry.Unknown, "unproven")
		equal(t, "asks", len(o.asked()), 1)
		r := w.entry(id)
		equal(t, "due when it may count", r.DueAt.Sub(began).Round(time.Second), 31*time.Second)
		equal(t, "queries", r.Queries, 0)

		pass(20 * time.Second) // asked again at 31 s, pending, sent again after the backoff
		w.expect(id, entry.Delivered, "")
		equal(t, "calls, asks", [2]int{len(o.called()), len(o.asked())}, [2]int{2, 2})
		equal(t, "evidence", join(w.evidence(id)),
			"outcome may_have_happened timeout; query not_applied http_404; query not_applied http_404")
	})
}

func TestQuestionsWithoutAnAnswerEndHeldAndCanBeAskedByHand(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: func(context.Context, handler.Call, int) ([]byte, error) { return nil, errLost }}
		o.ask = func(_ context.Context, _ handler.Call, n int) handler.Answer {
			switch n {
			case 1:
				return handler.Answer{Found: handler.InProgress, Code: "http_202"}
			case 4:
				return handler.Answer{Found: handler.Applied, Code: "http_200"}
			}
			return handler.Answer{Found: handler.NoAnswer, Code: "http_500"}
		}
		w := open(t, options{}, tool("refund", entry.Queryable, o, func(c *config.Tool) { c.Retry.MaxQueries = 3 })).run()
		id := w.accept("refund", "order-17")
		pass(time.Minute)

		r := w.expect(id, entry.Unknown, "queries_exhausted")
		w.held(id)
		equal(t, "queries, asks", [2]int{r.Queries, len(o.asked())}, [2]int{3, 3})

		if err := w.poller.Reconcile(t.Context(), id); err != nil {
			t.Errorf("reconcile: %v", err)
		}
		w.expect(id, entry.Delivered, "")
		equal(t, "receipt", w.receipt(id), "receipt_reconciled 1 ")
		if err := w.poller.Reconcile(t.Context(), id); !errors.Is(err, entry.ErrStale) {
			t.Errorf("reconcile of a delivered entry answered %v, want ErrStale", err)
		}
		equal(t, "calls", len(o.called()), 1)
	})
}

func TestReconcileAsksNowWhatWouldBeAskedLater(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: func(context.Context, handler.Call, int) ([]byte, error) { return nil, handler.Ongoing(errLost) }}
		o.ask = func(context.Context, handler.Call, int) handler.Answer {
			return handler.Answer{Found: handler.Conflict, Code: "conflict"}
		}
		w := open(t, options{}, tool("refund", entry.Queryable, o, func(c *config.Tool) {
			c.Retry.Initial, c.Retry.Max = time.Minute, time.Minute
		})).run()
		id := w.accept("refund", "order-17")
		pass(time.Second)
		w.expect(id, entry.Unknown, "unproven")

		if err := w.poller.Reconcile(t.Context(), id); err != nil {
			t.Errorf("reconcile: %v", err)
		}
		w.expect(id, entry.Unknown, "conflict")
		w.held(id)
		equal(t, "asks", len(o.asked()), 1)
	})
}

// 409 is an answer, but the request that it speaks of still runs.
func TestNotAppliedRightAfterInProgressDoesNotCount(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{outcome: func(_ handler.Call, n int) handler.Outcome {
			if n > 1 {
				return handler.Outcome{Observed: handler.Succeeded, Code: "http_200"}
			}
			return handler.Outcome{Observed: handler.InProgress, Code: "http_409", Answered: true}
		}}
		o.ask = func(context.Context, handler.Call, int) handler.Answer {
			return handler.Answer{Found: handler.NotApplied, Code: "http_404"}
		}
		w := open(t, options{}, tool("refund", entry.Queryable, o, func(c *config.Tool) { c.Query.NotBefore = time.Minute })).run()
		w.accept("refund", "order-17")
		pass(10 * time.Minute)
		if g := o.gaps(); len(g) != 1 || g[0] < 70*time.Second {
			t.Errorf("waits between requests: got %v, want one of more than 1m10s", g)
		}
	})
}

func TestAFunctionThatIsKnownToStillRunIsNotAskedAbout(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{ask: neverAsked(t), do: takes(time.Hour)}
		w := open(t, options{poll: time.Minute}, tool("refund", entry.Queryable, o)).run()
		id := w.accept("refund", "order-17")
		pass(2 * time.Hour) // it was given up after 11 s, and has ended by now
		w.expect(id, entry.Unknown, "abandoned")
		w.held(id)
		equal(t, "requests", len(o.called()), 1)
	})
}

func TestQuestionsByHandAreBoundedByTheToolsConcurrency(t *testing.T) {
	story(t, func(t *testing.T) {
		var now, most atomic.Int32
		o := &outside{do: always(errLost)}
		o.ask = func(context.Context, handler.Call, int) handler.Answer {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			<-time.After(time.Second)
			now.Add(-1)
			return handler.Answer{Found: handler.InProgress, Code: "http_202"}
		}
		w := open(t, options{poll: time.Hour}, tool("refund", entry.Queryable, o, func(c *config.Tool) {
			c.Concurrency, c.Retry.MaxQueries = 2, 1
		})).run()
		ids := w.acceptMany("refund", 6)
		pass(30 * time.Second)
		most.Store(0)
		var asking sync.WaitGroup
		for _, id := range ids {
			asking.Go(func() { must(t, w.poller.Reconcile(context.Background(), id)) })
		}
		asking.Wait()
		equal(t, "most at a time", most.Load(), 2)
	})
}

func TestNothingThatIsAskedByHandOutlivesTheDrain(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: always(errLost)}
		o.ask = func(ctx context.Context, _ handler.Call, n int) handler.Answer {
			if n > 1 {
				<-ctx.Done()
			}
			return handler.Answer{Found: handler.NoAnswer, Code: "cancelled"}
		}
		w := open(t, options{}, tool("refund", entry.Queryable, o, func(c *config.Tool) {
			c.Query.Timeout, c.Retry.MaxQueries = time.Hour, 1
		})).run()
		id := w.accept("refund", "order-17")
		pass(10 * time.Second)
		w.held(id)
		asked := make(chan error, 1)
		go func() { asked <- w.poller.Reconcile(context.Background(), id) }()
		synctest.Wait()
		w.cancel()
		pass(time.Second)
		equal(t, "ended before its question", len(w.ran), 0)
		w.cut(poller.ErrCutOff)
		w.stop()
		must(t, <-asked)
		equal(t, "questions", len(o.asked()), 2)
		if err := w.poller.Reconcile(context.Background(), id); !errors.Is(err, entry.ErrStale) {
			t.Errorf("asking after the end: got %v, want %v", err, entry.ErrStale)
		}
		equal(t, "owner", w.entry(id).Owner, 0)
	})
}

func TestAfterTheKeyWindowNotAppliedIsNoAnswer(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: func(context.Context, handler.Call, int) ([]byte, error) { return nil, errLost }}
		o.ask = func(_ context.Context, _ handler.Call, n int) handler.Answer {
			if n == 1 {
				return handler.Answer{Found: handler.NoAnswer, Code: "dns"}
			}
			return handler.Answer{Found: handler.NotApplied, Code: "http_404"}
		}
		w := open(t, options{}, tool("refund", entry.Queryable, o, func(c *config.Tool) {
			c.KeyWindow = time.Minute
			c.Retry.Backoff, c.Retry.Initial, c.Retry.Max, c.Retry.MaxQueries = "constant", 2*time.Minute, 2*time.Minute, 3
		})).run()
		id := w.accept("refund", "order-17")
		pass(10 * time.Minute)

		w.expect(id, entry.Unknown, "queries_exhausted")
		equal(t, "calls", len(o.called()), 1)
	})
}

func TestAQuestionThatPanicsOrTimesOutIsNoAnswer(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: func(context.Context, handler.Call, int) ([]byte, error) { return nil, errLost }}
		o.ask = func(ctx context.Context, _ handler.Call, n int) handler.Answer {
			switch n {
			case 1:
				panic("asker")
			case 2:
				<-ctx.Done()
				return handler.Answer{Found: handler.NoAnswer, Code: "timeout"}
			}
			return handler.Answer{Found: handler.Applied}
		}
		w := open(t, options{}, tool("refund", entry.Queryable, o)).run()
		id := w.accept("refund", "order-17")
		pass(2 * time.Minute)
		w.expect(id, entry.Delivered, "")
		equal(t, "evidence", join(w.evidence(id)),
			"outcome may_have_happened error; query no_answer panic; query no_answer timeout")
	})
}
