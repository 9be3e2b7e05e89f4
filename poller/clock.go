package poller

import "time"

// stepSize is the smallest difference between wall and monotonic clock that is
// taken for a step.
const stepSize = 2 * time.Second

// agelessTime is how long ages are not judged after a step.
const agelessTime = time.Minute

// clock notices when the wall clock is set. It belongs to the goroutine of Run.
type clock struct {
	wall    time.Time // without its monotonic reading
	mono    time.Time
	stepped time.Time // monotonic; zero: never

	back  bool          // it was set back, and due times still stand as they were
	ahead time.Duration // by how much it was set forward, not yet credited to the tools
}

// tick returns by how much the wall clock was set since the last tick, 0 for
// less than stepSize.
func (c *clock) tick(wall, mono time.Time) time.Duration {
	wall = wall.Round(0)
	defer func() { c.wall, c.mono = wall, mono }()
	if c.mono.IsZero() {
		return 0
	}
	by := wall.Sub(c.wall) - mono.Sub(c.mono)
	if by.Abs() < stepSize {
		return 0
	}
	c.note(by, mono)
	return by
}

// note: the clock was set by that much.
func (c *clock) note(by time.Duration, mono time.Time) {
	c.stepped = mono
	c.back = c.back || by < 0
	c.ahead += max(by, 0)
}

// ageless: the clock was set a moment ago, so that ages say nothing.
func (c *clock) ageless(mono time.Time) bool {
	return !c.stepped.IsZero() && mono.Sub(c.stepped) < agelessTime
}
