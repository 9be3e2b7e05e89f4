// Package backoff decides how long an entry waits before its next attempt.
//
// It promises that a delay is a pure function of (policy, failures, seed),
// that it is positive and never above the policy's cap, for any count and any
// policy, and that without jitter an exponential delay never falls while the
// count rises. It leaves to others when to give up, and whether a policy makes
// sense: config refuses the ones that do not.
package backoff

import (
	"math"
	"math/rand/v2"
	"time"
)

// Limit is the longest delay there is: the cap of a policy that names none,
// and of a Retry-After that asks for more.
const Limit = 365 * 24 * time.Hour

// floor is the shortest delay: due times are stored in milliseconds, and a
// delay that rounds to zero would be a retry at once.
const floor = time.Millisecond

// Kind names how delays grow with the number of failures.
type Kind string

// The kinds of growth. Anything else grows like Exponential.
const (
	Exponential Kind = "exponential" // Initial * Factor^(failures-1)
	Constant    Kind = "constant"    // Initial, always
	List        Kind = "list"        // Delays in order, the last one for ever
)

// Jitter names how a delay is spread, so that what failed together does not
// come back together.
type Jitter string

// The ways to spread a delay d. Anything else, the empty string among it, is None.
const (
	Full  Jitter = "full"  // anywhere from a millisecond to d
	Equal Jitter = "equal" // anywhere from d/2 to d
	None  Jitter = "none"  // d
)

// Policy says how long to wait after a number of failures. A Max of zero or
// less stands for Limit; a Factor below 1, or no number, counts as 1.
type Policy struct {
	Kind    Kind
	Initial time.Duration
	Factor  float64
	Max     time.Duration
	Delays  []time.Duration // of Kind List; empty stands for Initial alone
	Jitter  Jitter
}

// Seed is the seed of one attempt of one entry: it spreads entries and attempts, and
// is the same for the same attempt.
func Seed(entry int64, attempt int) uint64 { return uint64(entry)<<20 ^ uint64(attempt) }

// Delay is the time to wait after the given number of failures, counted from 1
// (less counts as 1). The same seed gives the same delay. It is never zero or
// negative and never above Max; it is below a millisecond only if Max is.
func (p Policy) Delay(failures int, seed uint64) time.Duration {
	least, most := p.Range(failures)
	return spread(least, most, max(failures, 1), seed)
}

func (p Policy) limit() time.Duration {
	if p.Max <= 0 {
		return Limit
	}
	return min(p.Max, Limit)
}

// base is the delay before floor, cap and jitter.
func (p Policy) base(failures int, limit time.Duration) time.Duration {
	switch p.Kind {
	case Constant:
		return p.Initial
	case List:
		if len(p.Delays) == 0 {
			return p.Initial
		}
		return p.Delays[min(failures, len(p.Delays))-1]
	default:
		return p.grown(failures, limit)
	}
}

// grown caps before it converts: a float beyond the range of a Duration would
// come out negative, which is a retry at once.
func (p Policy) grown(failures int, limit time.Duration) time.Duration {
	if p.Initial <= 0 {
		return 0 // also keeps 0 * infinity, which is no number, from what follows
	}
	factor := p.Factor
	if !(factor >= 1) {
		factor = 1
	}
	grown := float64(p.Initial) * math.Pow(factor, float64(failures-1))
	if grown >= float64(limit) {
		return limit
	}
	return time.Duration(grown)
}

// spread picks evenly from low to high, both included. The count takes part,
// so that one seed for an entry gives another place at each attempt.
func spread(low, high time.Duration, failures int, seed uint64) time.Duration {
	if high <= low {
		return high
	}
	r := rand.New(rand.NewPCG(seed, uint64(failures)))
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}

// Range is between which times the delay after so many failures lies, whatever the
// seed, both included.
func (p Policy) Range(failures int) (least, most time.Duration) {
	failures = max(failures, 1)
	limit := p.limit()
	low := min(floor, limit)
	delay := max(low, min(p.base(failures, limit), limit))
	switch p.Jitter {
	case Full:
		return low, delay
	case Equal:
		return max(low, delay-delay/2), delay
	}
	return delay, delay
}
