package deadletter

import (
	"slices"
	"sort"
	"time"

	"github.com/outboxd/outboxd/backoff"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
)

// Course is how a round went, or would have gone.
type Course struct {
	ID       int64
	Round    int
	End      End           // Succeeded, GaveUp, Refused, Doubted or Open
	Attempts []time.Time   // when each was made
	Wait     time.Duration // from the first attempt to the last
}

// Recorded is how the rounds went.
func Recorded(rounds []Round) []Course {
	list := make([]Course, len(rounds))
	ended := func(r Round) End {
		last := r.Attempts[len(r.Attempts)-1].End
		switch {
		case last == Failed && r.over:
			return GaveUp
		case last == Failed:
			return Open
		}
		return last
	}
	for i, r := range rounds {
		times := make([]time.Time, len(r.Attempts))
		for j, t := range r.Attempts {
			times[j] = t.At
		}
		list[i] = course(r, times, ended(r))
	}
	return list
}

func course(r Round, times []time.Time, end End) Course {
	return Course{r.ID, r.Number, end, times, times[len(times)-1].Sub(times[0])}
}

// Simulate is how the rounds would have gone under another policy, with the delays
// that the poller would have chosen. It takes an attempt to take no time and the
// downstream to have been as the attempt recorded last before that moment found it,
// whosever it was; but what failed again while others succeeded fails by itself,
// until it succeeded, and what was recorded of the operation itself at or before
// that moment counts first. Beyond the last recorded attempt nothing is known: such
// a round stays Open. Retry-After, pauses and the time that a daemon was down are
// not replayed.
func Simulate(rounds []Round, retry contract.Retry) []Course {
	w := newWeather(rounds)
	list := make([]Course, len(rounds))
	for i, r := range rounds {
		list[i] = w.run(r, retry)
	}
	return list
}

// weather is how the downstream was found over time.
type weather struct {
	seen      []Tried     // in order
	successes []time.Time // in order
}

func newWeather(rounds []Round) *weather {
	w := &weather{}
	for _, r := range rounds {
		for _, t := range r.Attempts {
			if !t.guard {
				w.seen = append(w.seen, t)
			}
		}
	}
	slices.SortStableFunc(w.seen, func(a, b Tried) int { return a.At.Compare(b.At) })
	for _, t := range w.seen {
		if t.End == Succeeded {
			w.successes = append(w.successes, t.At)
		}
	}
	return w
}

// at is how the downstream was found last at or before t; Open: after all that is
// recorded.
func (w *weather) at(t time.Time) End {
	n := sort.Search(len(w.seen), func(i int) bool { return w.seen[i].At.After(t) })
	switch {
	case len(w.seen) == 0 || n == len(w.seen) && t.After(w.seen[n-1].At):
		return Open
	case n == 0:
		return w.seen[0].End
	}
	return w.seen[n-1].End
}

// between reports whether anything succeeded after one instant and before another.
func (w *weather) between(from, to time.Time) bool {
	n := sort.Search(len(w.successes), func(i int) bool { return w.successes[i].After(from) })
	return n < len(w.successes) && w.successes[n].Before(to)
}

// own: the round fails by itself, not with everybody.
func (w *weather) own(r Round) bool {
	var first, last time.Time
	for _, t := range r.Attempts {
		if t.End != Failed {
			continue
		}
		if last = t.At; first.IsZero() {
			first = t.At
		}
	}
	return w.between(first, last)
}

func (w *weather) run(r Round, retry contract.Retry) Course {
	own := w.own(r)
	at, number := r.Attempts[0].At, r.Attempts[0].Attempt
	var times []time.Time
	for failures := 0; ; number++ {
		end := w.outcome(r, own, at)
		if end == Open {
			if len(times) == 0 {
				times = []time.Time{at}
			}
			return course(r, times, Open)
		}
		if times = append(times, at); end != Failed {
			return course(r, times, end)
		}
		next := at.Add(retry.Backoff.Delay(failures+1, backoff.Seed(r.ID, number))).Truncate(time.Millisecond)
		d := entry.Due{Failures: failures, RoundAt: r.Began, Round: r.Number}
		reason := Limits{Retry: retry, Now: at}.AfterFailure(d, time.Time{}, next)
		failures++
		if d.Failures = failures; reason == "" {
			reason = Limits{Retry: retry, Now: next}.AtClaim(d)
		}
		if reason != "" {
			return course(r, times, GaveUp)
		}
		at = next
	}
}

// outcome of an attempt at t.
func (w *weather) outcome(r Round, own bool, t time.Time) End {
	last := r.Attempts[len(r.Attempts)-1]
	final := last.End != Failed
	switch {
	case !r.Attempts[0].At.Before(t):
		return r.Attempts[0].End
	case final && !t.Before(last.At):
		return last.End
	case own && (final || !t.After(w.seen[len(w.seen)-1].At)):
		return Failed
	}
	switch found := w.at(t); {
	case found == Succeeded || found == Refused: // the downstream worked: so the round would have met its own end
		if final {
			return last.End
		}
		return Succeeded
	default:
		return found
	}
}
