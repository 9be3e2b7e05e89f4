package deadletter_test

import (
	"testing"
	"time"

	"github.com/outboxd/outboxd/backoff"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/deadletter"
)

// tried is a round of attempts at these seconds, of which only the last may end
// otherwise than failed.
func tried(id int64, last deadletter.End, seconds ...int) deadletter.Round {
	r := deadletter.Round{ID: id, Number: 1, Began: at(time.Duration(seconds[0]) * time.Second)}
	for i, s := range seconds {
		end := deadletter.Failed
		if i == len(seconds)-1 {
			end = last
		}
		r.Attempts = append(r.Attempts, deadletter.Tried{Attempt: i + 1, At: at(time.Duration(s) * time.Second), End: end})
	}
	return r
}

// constant waits ten seconds, so often.
func constant(attempts int) contract.Retry {
	return contract.Retry{MaxAttempts: attempts, MaxLapses: 3,
		Backoff: backoff.Policy{Kind: backoff.Constant, Initial: 10 * time.Second, Jitter: backoff.None}}
}

func TestARoundMeetsTheDownstreamAsItWasFound(t *testing.T) {
	for _, c := range []struct {
		name     string
		rounds   []deadletter.Round // the first one is looked at
		attempts int
		want     deadletter.End
		made     int
	}{
		{"done at once", []deadletter.Round{tried(1, deadletter.Succeeded, 0)}, 3, deadletter.Succeeded, 1},
		{"well when others found it so", []deadletter.Round{tried(1, deadletter.Failed, 0, 5),
			tried(2, deadletter.Succeeded, 18), tried(3, deadletter.Succeeded, 60)}, 5, deadletter.Succeeded, 3},
		{"not well until then", []deadletter.Round{tried(1, deadletter.Failed, 0, 5),
			tried(2, deadletter.Succeeded, 18), tried(3, deadletter.Succeeded, 60)}, 2, deadletter.GaveUp, 2},
		{"a failure of its own, while others succeed", []deadletter.Round{tried(1, deadletter.Failed, 0, 30, 60),
			tried(2, deadletter.Succeeded, 15), tried(3, deadletter.Succeeded, 90)}, 4, deadletter.GaveUp, 4},
		{"until it succeeded", []deadletter.Round{tried(1, deadletter.Succeeded, 0, 30, 45),
			tried(2, deadletter.Succeeded, 15)}, 9, deadletter.Succeeded, 6},
		{"beyond the record", []deadletter.Round{tried(1, deadletter.Failed, 0, 5)}, 5, deadletter.Open, 1},
		{"refused once it is heard", []deadletter.Round{tried(1, deadletter.Refused, 0, 40),
			tried(2, deadletter.Succeeded, 18)}, 9, deadletter.Refused, 3},
		{"in doubt is not sent again", []deadletter.Round{tried(1, deadletter.Doubted, 0)}, 9, deadletter.Doubted, 1},
	} {
		got := deadletter.Simulate(c.rounds, constant(c.attempts))[0]
		if got.End != c.want || len(got.Attempts) != c.made {
			t.Errorf("%s: got %s after %d attempts, want %s after %d", c.name, got.End, len(got.Attempts), c.want, c.made)
		}
	}
}
