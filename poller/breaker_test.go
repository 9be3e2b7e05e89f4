package poller_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
)

// outage fails in one way while down, and else succeeds.
func outage(down *atomic.Bool, how handler.Outcome) *outside {
	return &outside{outcome: func(handler.Call, int) handler.Outcome {
		if down.Load() {
			return how
		}
		return handler.Outcome{Observed: handler.Succeeded, Code: "http_200", Answered: true}
	}}
}

func broken(c *config.Tool) {
	c.Breaker = config.Breaker{Failures: 3, Window: time.Minute, Cooldown: 30 * time.Second}
	c.Retry.MaxAttempts = 1000
	c.Retry.Initial, c.Retry.Factor = time.Second, 1
	c.Concurrency = 1
}

func TestABreakerLeavesADestinationAloneAndProbesItWithOneAttempt(t *testing.T) {
	for _, how := range []handler.Outcome{
		{Observed: handler.NotSent, Code: "connect", Answered: true},
		{Observed: handler.MayHaveHappened, Code: "http_500", Answered: true},
		{Observed: handler.MayHaveHappened, Code: "timeout"},
		{Observed: handler.TryAgain, Code: "http_503", Answered: true},
	} {
		t.Run(how.Code, func(t *testing.T) {
			story(t, func(t *testing.T) {
				var down atomic.Bool
				down.Store(true)
				o := outage(&down, how)
				w := open(t, options{}, tool("mail", entry.Idempotent, o, broken)).run()
				w.acceptMany("mail", 20)
				pass(29 * time.Second)
				equal(t, "requests until it opens", len(o.called()), 3)
				pass(5 * time.Second)
				equal(t, "with the first probe", len(o.called()), 4)
				pass(24 * time.Second)
				equal(t, "a probe that fails opens it again", len(o.called()), 4)
				down.Store(false)
				pass(20 * time.Second)
				equal(t, "states", fmt.Sprint(w.states("mail")), "map[delivered:20]")
				equal(t, "requests", len(o.called()), 24)
				equal(t, "breaker", w.breaker("mail").IsZero(), true)
			})
		})
	}
}

// A restart does not hammer what has just been left alone.
func TestAnOpenBreakerOutlivesARestart(t *testing.T) {
	story(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		o := outage(&down, handler.Outcome{Observed: handler.NotSent, Code: "connect", Answered: true})
		w := open(t, options{}, tool("mail", entry.Idempotent, o, broken)).run()
		w.acceptMany("mail", 5)
		pass(10 * time.Second)
		equal(t, "requests", len(o.called()), 3)
		w.stop()
		w = w.next(tool("mail", entry.Idempotent, o, broken)).run()
		pass(10 * time.Second)
		equal(t, "requests after the restart", len(o.called()), 3)
		down.Store(false)
		pass(30 * time.Second)
		equal(t, "states", fmt.Sprint(w.states("mail")), "map[delivered:5]")
	})
}

// What the destination refuses is an answer: it works.
func TestRefusalsOpenNoBreaker(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{outcome: func(_ handler.Call, n int) handler.Outcome {
			if n%3 == 0 {
				return handler.Outcome{Observed: handler.Rejected, Code: "http_422", Answered: true}
			}
			return handler.Outcome{Observed: handler.NotSent, Code: "connect", Answered: true}
		}}
		w := open(t, options{}, tool("mail", entry.Idempotent, o, broken)).run()
		w.acceptMany("mail", 10)
		pass(20 * time.Second)
		equal(t, "breaker", w.breaker("mail").IsZero(), true)
		if len(o.called()) < 15 {
			t.Errorf("%d requests", len(o.called()))
		}
	})
}

func TestTooManyUnknownsAtOncePauseTheTool(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{outcome: func(handler.Call, int) handler.Outcome {
			return handler.Outcome{Observed: handler.MayHaveHappened, Code: "timeout"}
		}}
		w := open(t, options{}, tool("pay", entry.Opaque, o, func(c *config.Tool) {
			c.UnknownBudget = config.UnknownBudget{Count: 2, Per: time.Minute}
			c.Concurrency = 1
		})).run()
		w.acceptMany("pay", 2)
		pass(2 * time.Minute)
		equal(t, "after two, and a while", w.paused("pay"), "")
		w.acceptMany("pay", 10)
		synctest.Wait()
		equal(t, "states", fmt.Sprint(w.states("pay")), "map[pending:5 unknown:5]")
		equal(t, "reason", w.paused("pay"), "unknown_budget: more than 2 in 1m0s")
		must(t, w.poller.Resume(t.Context(), "pay"))
		pass(time.Second)
		equal(t, "a person gives it another budget", fmt.Sprint(w.states("pay")), "map[pending:2 unknown:8]")
	})
}

func (w *world) breaker(tool string) time.Time {
	w.t.Helper()
	tools, err := w.poller.Tools(w.t.Context())
	must(w.t, err)
	for _, s := range tools {
		if s.Name == tool {
			return s.Breaker
		}
	}
	return time.Time{}
}
