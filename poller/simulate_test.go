package poller_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// lean is three quarters of a minute in which a downstream takes nothing, while 40
// operations come in. Two of them it never takes. It returns what was recorded.
func lean(t *testing.T, change func(*config.Tool)) (rounds []deadletter.Round, retry func() []deadletter.Course) {
	began := time.Now()
	o := &outside{do: func(_ context.Context, c handler.Call, _ int) ([]byte, error) {
		switch {
		case c.Key == "order-7":
			return nil, handler.Again(errLost, -1)
		case time.Since(began) < 45*time.Second:
			return nil, handler.Again(errLost, -1)
		case c.Key == "order-9":
			return nil, handler.Reject(errLost)
		}
		return nil, nil
	}}
	k := tool("refund", entry.Idempotent, o, change)
	w := open(t, options{poll: 5 * time.Minute, concurrency: 64}, k).run()
	for i := range 40 {
		w.accept("refund", fmt.Sprintf("order-%d", i))
		pass(500 * time.Millisecond)
	}
	pass(5 * time.Minute)
	ledgertest.Read(t, w.ledger, func(v *ledger.View) (err error) {
		rounds, err = deadletter.History(v, "refund", time.Time{})
		return err
	})
	made, _ := ledgertest.Registry(t, k.Tool).Lookup("refund")
	return rounds, func() []deadletter.Course { return deadletter.Simulate(rounds, made.Retry) }
}

func before(c *config.Tool) {
	c.Retry.Backoff, c.Retry.Initial, c.Retry.Jitter, c.Retry.MaxAttempts = "constant", time.Second, "equal", 120
	c.Concurrency = 64
}

func after(c *config.Tool) {
	c.Retry.Backoff, c.Retry.Initial, c.Retry.Factor, c.Retry.Jitter = "exponential", 2*time.Second, 2, "full"
	c.Retry.Max, c.Retry.MaxAttempts, c.Retry.MaxAge = 40*time.Second, 7, 50*time.Second
	c.Concurrency = 64
}

// TestASimulationAgreesWithWhatThenHappens replays what was recorded under one
// policy under another one, and then the same outage really under that one: each
// operation is attempted at the same instants and ends in the same way.
func TestASimulationAgreesWithWhatThenHappens(t *testing.T) {
	var foretold, happened []deadletter.Course
	story(t, func(t *testing.T) {
		rounds, _ := lean(t, before)
		made, _ := ledgertest.Registry(t, tool("refund", entry.Idempotent, nil, after).Tool).Lookup("refund")
		foretold = deadletter.Simulate(rounds, made.Retry)
	})
	story(t, func(t *testing.T) {
		rounds, _ := lean(t, after)
		happened = deadletter.Recorded(rounds)
	})
	ends := map[deadletter.End]int{}
	for _, c := range happened {
		ends[c.End]++
	}
	if len(happened) != 40 || ends[deadletter.Succeeded] < 5 || ends[deadletter.GaveUp] < 5 {
		t.Fatalf("got %d rounds that ended %v: the story is to have some of both ends", len(happened), ends)
	}
	if d := cmp.Diff(happened, foretold); d != "" {
		t.Errorf("what happened and what was foretold (-happened +foretold):\n%s", d)
	}
}

// What is simulated under the policy that it was recorded under is what was
// recorded.
func TestASimulationOfTheSamePolicyIsTheRecord(t *testing.T) {
	story(t, func(t *testing.T) {
		rounds, again := lean(t, after)
		if d := cmp.Diff(deadletter.Recorded(rounds), again()); d != "" {
			t.Errorf("the same policy (-recorded +simulated):\n%s", d)
		}
	})
}
