package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/outboxd/outboxd/backoff"
	"pgregory.net/rapid"
)

func TestDelayWithoutJitter(t *testing.T) {
	exponential := backoff.Policy{Kind: backoff.Exponential, Initial: time.Second, Factor: 2, Max: time.Hour}
	constant := backoff.Policy{Kind: backoff.Constant, Initial: 3 * time.Second, Max: time.Hour}
	list := backoff.Policy{Kind: backoff.List, Delays: []time.Duration{time.Second, time.Minute, 2 * time.Hour}, Max: time.Hour}
	tests := []struct {
		name     string
		policy   backoff.Policy
		failures int
		want     time.Duration
	}{
		{"first", exponential, 1, time.Second},
		{"second", exponential, 2, 2 * time.Second},
		{"twelfth", exponential, 12, 2048 * time.Second},
		{"thirteenth is capped", exponential, 13, time.Hour},
		{"beyond int64", exponential, 65, time.Hour},
		{"beyond float64", exponential, 5000, time.Hour},
		{"largest count", exponential, math.MaxInt, time.Hour},
		{"count 0 is the first", exponential, 0, time.Second},
		{"negative count is the first", exponential, math.MinInt, time.Second},
		{"constant first", constant, 1, 3 * time.Second},
		{"constant later", constant, 1000, 3 * time.Second},
		{"list first", list, 1, time.Second},
		{"list second", list, 2, time.Minute},
		{"list is capped", list, 3, time.Hour},
		{"list goes on with its last", list, math.MaxInt, time.Hour},
		{"empty list", backoff.Policy{Kind: backoff.List, Initial: time.Minute, Max: time.Hour}, 3, time.Minute},
		{"zero policy", backoff.Policy{}, 7, time.Millisecond},
		{"initial 0, endless factor", backoff.Policy{Factor: math.Inf(1), Max: time.Hour}, 9, time.Millisecond},
		{"negative initial", backoff.Policy{Kind: backoff.Constant, Initial: -time.Hour, Max: time.Hour}, 1, time.Millisecond},
		{"factor is no number", backoff.Policy{Initial: time.Second, Factor: math.NaN(), Max: time.Hour}, 4, time.Second},
		{"factor below 1", backoff.Policy{Initial: time.Second, Factor: 0.5, Max: time.Hour}, 4, time.Second},
		{"no cap named", backoff.Policy{Initial: time.Second, Factor: 100}, 100, backoff.Limit},
		{"cap below a millisecond", backoff.Policy{Initial: time.Second, Factor: 2, Max: time.Microsecond}, 1, time.Microsecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.policy.Delay(tt.failures, 1); got != tt.want {
				t.Errorf("%+v.Delay(%d) = %v, want %v", tt.policy, tt.failures, got, tt.want)
			}
		})
	}
}

func TestDelayOfZeroWithJitterDoesNotPanic(t *testing.T) {
	for _, jitter := range []backoff.Jitter{backoff.Full, backoff.Equal, backoff.None, ""} {
		p := backoff.Policy{Kind: backoff.Constant, Max: time.Hour, Jitter: jitter}
		if got := p.Delay(1, 99); got != time.Millisecond {
			t.Errorf("jitter %q of initial 0: %v, want 1ms", jitter, got)
		}
	}
}

func policies() *rapid.Generator[backoff.Policy] {
	return rapid.Custom(func(t *rapid.T) backoff.Policy {
		duration := rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) })
		return backoff.Policy{
			Kind:    rapid.SampledFrom([]backoff.Kind{backoff.Exponential, backoff.Constant, backoff.List, ""}).Draw(t, "kind"),
			Initial: duration.Draw(t, "initial"),
			Factor:  rapid.Float64().Draw(t, "factor"),
			Max:     time.Duration(rapid.Int64Min(1).Draw(t, "max")),
			Delays:  rapid.SliceOf(duration).Draw(t, "delays"),
			Jitter:  rapid.SampledFrom([]backoff.Jitter{backoff.Full, backoff.Equal, backoff.None}).Draw(t, "jitter"),
		}
	})
}

func TestDelayIsPositivePureAndCappedForEveryPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policies().Draw(t, "policy")
		failures, seed := rapid.Int().Draw(t, "failures"), rapid.Uint64().Draw(t, "seed")
		got := p.Delay(failures, seed)
		if got <= 0 || got > p.Max {
			t.Fatalf("Delay(%d, %d) = %v, want above 0 and at most %v", failures, seed, got, p.Max)
		}
		if again := p.Delay(failures, seed); again != got {
			t.Fatalf("Delay(%d, %d) = %v, then %v", failures, seed, got, again)
		}
	})
}

func TestExponentialNeverFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policies().Draw(t, "policy")
		p.Kind, p.Jitter = backoff.Exponential, backoff.None
		fewer := rapid.IntRange(1, math.MaxInt-1).Draw(t, "fewer")
		more := rapid.IntRange(fewer, math.MaxInt).Draw(t, "more")
		if a, b := p.Delay(fewer, 0), p.Delay(more, 0); a > b {
			t.Fatalf("Delay(%d) = %v is above Delay(%d) = %v", fewer, a, more, b)
		}
	})
}

// Entries that failed together have neighbouring seeds: they must still come
// back spread over the whole range.
func TestJitterSpreadsNeighbouringSeeds(t *testing.T) {
	tests := []struct {
		jitter backoff.Jitter
		low    time.Duration
	}{{backoff.Full, 0}, {backoff.Equal, 5 * time.Second}}
	for _, tt := range tests {
		p := backoff.Policy{Kind: backoff.Constant, Initial: 10 * time.Second, Max: time.Minute, Jitter: tt.jitter}
		const seeds, buckets = 10000, 10
		var hits [buckets]int
		width := (10*time.Second - tt.low) / buckets
		for seed := range uint64(seeds) {
			d := p.Delay(3, seed)
			if d < tt.low {
				t.Fatalf("%s: Delay(3, %d) = %v, want at least %v", tt.jitter, seed, d, tt.low)
			}
			hits[min((d-tt.low)/width, buckets-1)]++
		}
		for i, n := range hits {
			if n < seeds/buckets*8/10 || n > seeds/buckets*12/10 {
				t.Errorf("%s: bucket %d of %d has %d of %d delays: %v", tt.jitter, i, buckets, n, seeds, hits)
			}
		}
	}
}

func TestJitterDiffersFromAttemptToAttempt(t *testing.T) {
	p := backoff.Policy{Kind: backoff.Constant, Initial: time.Hour, Max: time.Hour, Jitter: backoff.Full}
	seen := map[time.Duration]bool{}
	for failures := 1; failures <= 20; failures++ {
		seen[p.Delay(failures, 7)] = true
	}
	if len(seen) != 20 {
		t.Errorf("20 counts with one seed gave %d delays, want 20", len(seen))
	}
}

func BenchmarkDelay(b *testing.B) {
	p := backoff.Policy{Kind: backoff.Exponential, Initial: time.Second, Factor: 2, Max: 10 * time.Minute, Jitter: backoff.Full}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p.Delay(i%12, uint64(i))
	}
}
