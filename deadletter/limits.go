// Package deadletter decides when to give up, and how a person brings work back.
//
// The limits count per round: a round begins when an operation may first be
// attempted, at an approval, or at a review's retry. What giving up means is not
// decided here: entry makes it dead where nothing sent is unproven, else unknown.
package deadletter

import (
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
)

// The reasons that an entry ends with, in answers, logs and the file.
const (
	Rejected          = "rejected"           // the downstream refused it
	AttemptsExhausted = "attempts_exhausted" // max_attempts failures in the round
	TooOld            = "too_old"            // max_age, after at least one failure
	CrashLoop         = "crash_loop"         // max_lapses as a suspect
	KeyWindowPassed   = "key_window_passed"  // the downstream may have forgotten the key
	QueriesExhausted  = "queries_exhausted"  // max_queries without an answer
	Unproven          = "unproven"           // it may have taken effect; nobody has proof
	NoQuery           = "no_query"           // it may have, and the tool cannot be asked
	Abandoned         = "abandoned"          // it still runs: a function that did not end at its time limit
	OutputInvalid     = "output_invalid"     // the downstream did it, and its answer breaks the output schema
	ApprovalRefused   = "approval_refused"   // a person refused it
	Conflict          = "conflict"           // the key stands for something else downstream
)

// Limits of one tool at one moment.
type Limits struct {
	Retry     contract.Retry
	KeyWindow time.Duration // 0: the downstream never forgets a key
	Now       time.Time
	Excused   time.Duration // paused and down time of the tool, in all
	NoAge     bool          // the clock has just been set: ages say nothing
}

// AtClaim is the reason for which a pending entry must not be attempted again,
// or "".
func (l Limits) AtClaim(d entry.Due) string {
	switch {
	case d.Lapses >= l.Retry.MaxLapses:
		return CrashLoop
	case d.Failures >= l.Retry.MaxAttempts:
		return AttemptsExhausted
	case d.Failures > 0 && l.tooOld(d):
		return TooOld
	case l.windowPassed(known(d, d.UnprovenSince), l.Now):
		return KeyWindowPassed
	}
	return ""
}

// known leaves to the person who began a later round what had been sent before it:
// the window that stops a resend counts from there.
func known(d entry.Due, unproven time.Time) time.Time {
	if d.Round > 1 && !unproven.IsZero() && unproven.Before(d.RoundAt) {
		return d.RoundAt
	}
	return unproven
}

// AfterFailure is the reason for which an entry whose attempt has just failed is
// given up instead of being tried again at next, or "". unproven is the first
// send that is still unproven after this failure; zero: there is none.
func (l Limits) AfterFailure(d entry.Due, unproven, next time.Time) string {
	switch {
	case d.Failures+1 >= l.Retry.MaxAttempts:
		return AttemptsExhausted
	case l.tooOld(d):
		return TooOld
	case l.windowPassed(known(d, unproven), next):
		return KeyWindowPassed
	}
	return ""
}

// Answerable reports whether "not applied" is still an answer: after the key
// window the downstream may only have forgotten.
func (l Limits) Answerable(d entry.Due) bool { return !l.windowPassed(d.UnprovenSince, l.Now) }

// tooOld leaves out the time in which the tool could not have been attempted.
func (l Limits) tooOld(d entry.Due) bool {
	if l.Retry.MaxAge <= 0 || l.NoAge {
		return false
	}
	excused := max(0, l.Excused-d.RoundExcused)
	return l.Now.Sub(d.RoundAt)-excused > l.Retry.MaxAge
}

func (l Limits) windowPassed(since, at time.Time) bool {
	return l.KeyWindow > 0 && !since.IsZero() && !at.Before(since.Add(l.KeyWindow))
}
