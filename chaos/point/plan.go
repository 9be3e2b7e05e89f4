package point

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Action is what happens at a point.
type Action string

// The actions.
const (
	Kill  Action = "kill"  // SIGKILL to this process
	Stop  Action = "stop"  // SIGSTOP: the process stands still until somebody continues it
	Sleep Action = "sleep" // this goroutine waits
)

// maxSteps is how long a chain can be.
const maxSteps = 3

// Step is one point of a plan, at its n-th hit.
type Step struct {
	Point  Point
	Action Action
	For    time.Duration // of Sleep
	Nth    int           // from 1
}

// String is the step as Parse reads it.
func (s Step) String() string {
	text := s.Point.String() + "=" + string(s.Action)
	if s.Action == Sleep {
		text += ":" + s.For.String()
	}
	if s.Nth > 1 {
		text += "@" + strconv.Itoa(s.Nth)
	}
	return text
}

// Plan is a chain of up to three steps: each counts its hits once the one before
// it was done. The zero value does nothing.
type Plan []Step

// String is the plan as Parse reads it.
func (p Plan) String() string {
	texts := make([]string, len(p))
	for i, s := range p {
		texts[i] = s.String()
	}
	return strings.Join(texts, ",")
}

// ErrPlan says that a plan cannot be read.
var ErrPlan = errors.New("a plan is up to three of POINT=kill|stop|sleep:DURATION[@N], separated by commas")

// Parse reads a plan: "claim.after=sleep:50ms,settle.before=kill@2". An unknown
// name is an error: what is never hit must not look as if it had been.
func Parse(text string) (Plan, error) {
	var plan Plan
	for part := range strings.SplitSeq(text, ",") {
		s, err := parseStep(part)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", part, err)
		}
		plan = append(plan, s)
	}
	if len(plan) > maxSteps {
		return nil, ErrPlan
	}
	return plan, nil
}

func parseStep(text string) (s Step, err error) {
	text, nth, counted := strings.Cut(text, "@")
	if s.Nth = 1; counted {
		if s.Nth, err = strconv.Atoi(nth); err != nil || s.Nth < 1 {
			return s, ErrPlan
		}
	}
	name, action, _ := strings.Cut(text, "=")
	var known bool
	if s.Point, known = Named(name); !known {
		return s, fmt.Errorf("no such point: %w", ErrPlan)
	}
	action, wait, timed := strings.Cut(action, ":")
	s.Action = Action(action)
	switch {
	case s.Action == Sleep && timed:
		if s.For, err = time.ParseDuration(wait); err != nil || s.For <= 0 {
			return s, ErrPlan
		}
	case (s.Action == Kill || s.Action == Stop) && !timed:
	default:
		return s, ErrPlan
	}
	return s, nil
}

// arming is a plan at work.
type arming struct {
	say io.Writer

	mu   sync.Mutex // guards what follows
	left Plan
	hits int // of the first of left
}

// Arm turns a plan on, for good, and says on w each time that it acts. An empty
// plan changes nothing.
func Arm(p Plan, w io.Writer) {
	if len(p) > 0 {
		armed.Store(&arming{say: w, left: p})
	}
}

// Said is the line that is written before an action takes place. A driver finds a
// hit by it.
func Said(s Step) string { return "chaos: " + s.String() + "\n" }

func (a *arming) all(set Set, point func(Kind) Point) {
	for k := range kinds {
		if set&(1<<k) != 0 {
			a.hit(point(k))
		}
	}
}

// hit acts under the lock: no other goroutine passes a point meanwhile, but after
// a sleep that others may overtake.
func (a *arming) hit(p Point) {
	s, due := a.due(p)
	if due && s.Action == Sleep {
		time.Sleep(s.For)
	}
}

func (a *arming) due(p Point) (s Step, due bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.left) == 0 || a.left[0].Point != p {
		return s, false
	}
	s = a.left[0]
	if a.hits++; a.hits < s.Nth {
		return s, false
	}
	a.left, a.hits = a.left[1:], 0
	_, _ = io.WriteString(a.say, Said(s)) // who listens finds the process gone all the same
	switch s.Action {
	case Kill:
		_ = unix.Kill(unix.Getpid(), unix.SIGKILL)
		select {}
	case Stop:
		stop()
	}
	return s, true
}

// stop stops the process in this very moment: a signal to the process would let
// this thread run on past the point.
func stop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
}
