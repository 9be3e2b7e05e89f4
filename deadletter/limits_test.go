package deadletter_test

import (
	"testing"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/entry"
)

var begin = time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return begin.Add(d) }

// limits of a tool, an hour after the round began.
func limits(change ...func(*deadletter.Limits)) deadletter.Limits {
	l := deadletter.Limits{Now: at(time.Hour), KeyWindow: 2 * time.Hour,
		Retry: contract.Retry{MaxAttempts: 3, MaxLapses: 2, MaxAge: 3 * time.Hour}}
	for _, f := range change {
		f(&l)
	}
	return l
}

func now(d time.Duration) func(*deadletter.Limits) {
	return func(l *deadletter.Limits) { l.Now = at(d) }
}

func TestALimitStopsTheNextAttempt(t *testing.T) {
	excused := func(l *deadletter.Limits) { l.Excused = 90 * time.Minute }
	stepped := func(l *deadletter.Limits) { l.NoAge = true }
	forever := func(l *deadletter.Limits) { l.KeyWindow, l.Retry.MaxAge = 0, 0 }
	for _, c := range []struct {
		name   string
		limits deadletter.Limits
		due    entry.Due
		want   string
	}{
		{"nothing has happened", limits(), entry.Due{}, ""},
		{"one failure left", limits(), entry.Due{Failures: 2}, ""},
		{"all failures", limits(), entry.Due{Failures: 3}, "attempts_exhausted"},
		{"more than all failures, after a reload", limits(), entry.Due{Failures: 9}, "attempts_exhausted"},
		{"one lapse left", limits(), entry.Due{Lapses: 1}, ""},
		{"all lapses", limits(), entry.Due{Lapses: 2}, "crash_loop"},
		{"old, and never failed", limits(now(99 * time.Hour)), entry.Due{}, ""},
		{"as old as it may be", limits(now(3 * time.Hour)), entry.Due{Failures: 1}, ""},
		{"too old", limits(now(3*time.Hour + 1)), entry.Due{Failures: 1}, "too_old"},
		{"too old but for a pause", limits(now(4*time.Hour), excused), entry.Due{Failures: 1}, ""},
		{"too old in spite of a pause", limits(now(5*time.Hour), excused), entry.Due{Failures: 1}, "too_old"},
		{"a pause before its round", limits(now(4*time.Hour), excused), entry.Due{Failures: 1, RoundExcused: 90 * time.Minute}, "too_old"},
		{"a file with less excused than the round began with", limits(now(4 * time.Hour)), entry.Due{Failures: 1, RoundExcused: time.Hour}, "too_old"},
		{"too old by a clock that was just set", limits(now(4*time.Hour), stepped), entry.Due{Failures: 1}, ""},
		{"by a clock that is behind", limits(now(-time.Hour)), entry.Due{Failures: 1}, ""},
		{"inside the key window", limits(), entry.Due{UnprovenSince: at(-59 * time.Minute)}, ""},
		{"at the end of the key window", limits(), entry.Due{UnprovenSince: at(-time.Hour)}, "key_window_passed"},
		{"sent before a review's round, inside the window since it began", limits(), entry.Due{UnprovenSince: at(-9 * time.Hour), Round: 2}, ""},
		{"sent before a review's round, at the end of the window since", limits(now(2 * time.Hour)), entry.Due{UnprovenSince: at(-9 * time.Hour), Round: 2}, "key_window_passed"},
		{"no key window, no age", limits(forever), entry.Due{Failures: 1, UnprovenSince: at(-9999 * time.Hour)}, ""},
	} {
		c.due.RoundAt = begin
		if got := c.limits.AtClaim(c.due); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestAFailureIsTheLastOneAtALimit(t *testing.T) {
	for _, c := range []struct {
		name     string
		limits   deadletter.Limits
		due      entry.Due
		unproven time.Time
		next     time.Time
		want     string
	}{
		{"the first", limits(), entry.Due{}, time.Time{}, at(2 * time.Hour), ""},
		{"the last", limits(), entry.Due{Failures: 2}, time.Time{}, at(2 * time.Hour), "attempts_exhausted"},
		{"too old at the first", limits(now(4 * time.Hour)), entry.Due{}, time.Time{}, at(5 * time.Hour), "too_old"},
		{"next would be inside the window", limits(), entry.Due{}, at(0), at(2*time.Hour - 1), ""},
		{"next would be after the window", limits(), entry.Due{}, at(0), at(2 * time.Hour), "key_window_passed"},
		{"nothing unproven", limits(), entry.Due{UnprovenSince: at(-99 * time.Hour)}, time.Time{}, at(2 * time.Hour), ""},
	} {
		c.due.RoundAt = begin
		if got := c.limits.AfterFailure(c.due, c.unproven, c.next); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestNotAppliedIsAnAnswerWhileTheKeyIsRemembered(t *testing.T) {
	for since, want := range map[time.Duration]bool{-59 * time.Minute: true, -time.Hour: false} {
		if got := limits().Answerable(entry.Due{UnprovenSince: at(since)}); got != want {
			t.Errorf("first unproven send at %v: got %v, want %v", since, got, want)
		}
	}
}
