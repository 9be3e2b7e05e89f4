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
	c.stepped = mono
	return by
}

// ageless: the clock was set a moment ago, so that ages say nothing.
func (c *clock) ageless(mono time.Time) bool {
	return !c.stepped.IsZero() && mono.Sub(c.stepped) < agelessTime
}
