package poller

import (
	"sync"
	"time"
)

// stepSize is the smallest difference between wall and monotonic clock that is
// taken for a step.
const stepSize = 2 * time.Second

// agelessTime is how long ages are not judged after a step.
const agelessTime = time.Minute

// clock notices when the wall clock is set. What mu does not guard belongs to the
// goroutine of Run.
type clock struct {
	mu      sync.Mutex // guards wall, mono and forward
	wall    time.Time  // without its monotonic reading
	mono    time.Time
	forward []forward // steps that stored instants do not show yet

	stepped time.Time     // monotonic; zero: never
	back    bool          // it was set back, and due times still stand as they were
	ahead   time.Duration // by how much it was set forward, not yet credited to the tools
}

// forward is a step of the wall clock to a later time.
type forward struct {
	by   time.Duration
	then time.Time // what the clock would show had it not been set
	sent time.Time // what was sent later than this was sent by the new clock
	read bool      // ids are known
	ids  []int64   // the entries that are still to be corrected
}

// tick returns by how much the wall clock was set since the last tick, 0 for
// less than stepSize.
func (c *clock) tick(wall, mono time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall = wall.Round(0)
	by := c.drift(wall, mono)
	c.wall, c.mono = wall, mono
	if by.Abs() < stepSize {
		return 0
	}
	c.stepped = mono
	c.back = c.back || by < 0
	c.ahead += max(by, 0)
	if by > 0 {
		c.forward = append(c.forward, forward{by: by, then: wall.Add(-by), sent: wall.Add(-by)})
	}
	return by
}

func (c *clock) drift(wall, mono time.Time) time.Duration {
	return wall.Sub(c.wall) - mono.Sub(c.mono)
}

// doubtful: the clock was set forward, and instants in the file do not show it.
func (c *clock) doubtful(wall, mono time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.forward) > 0 || c.drift(wall.Round(0), mono) >= stepSize
}

// first is the oldest step that is still to be corrected, or nil.
func (c *clock) first() *forward {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.forward) == 0 {
		return nil
	}
	return &c.forward[0]
}

// corrected: everything moved along with the oldest step.
func (c *clock) corrected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forward = c.forward[1:]
}

// wasAhead: the clock was set back while no daemon ran.
func (c *clock) wasAhead(mono time.Time) { c.stepped, c.back = mono, true }

// ageless: the clock was set a moment ago, so that ages say nothing.
func (c *clock) ageless(mono time.Time) bool {
	return !c.stepped.IsZero() && mono.Sub(c.stepped) < agelessTime
}
