// Package handler decides what an attempt was seen to come to: it hands one
// stored request to the outside (an HTTP endpoint, a program, a Go function, SQL in the file itself)
// and says what it observed, never what should follow from it.
//
// It promises that one call is one request: nothing is sent twice, no redirect
// is followed, and every call ends at its context's deadline plus a small
// grace. What cannot be told apart is reported as MayHaveHappened; NotSent is
// said only where no byte of the request left this process. Codes and excerpts
// hold no URL, no configured header or environment value and no arguments.
//
// It leaves to others when to call, how often, and what an observation means
// for an entry.
package handler

import (
	"context"
	"errors"
	"time"
)

// Purpose says what a call wants of the outside.
type Purpose string

// The purposes.
const (
	Execute Purpose = "execute" // produce the effect
	Query   Purpose = "query"   // tell what became of the wire key; no effect
)

// Call is one attempt's request, or one question about it. Its bytes are the
// stored ones: a handler changes nothing in them.
type Call struct {
	Purpose     Purpose
	StatusRef   string
	Tool        string
	Tenant      string
	Subject     string
	Key         string // the caller's idempotency key
	WireKey     string // what the downstream sees as idempotency key
	Attempt     int
	Token       int64  // the claim's fencing token
	Arguments   []byte // canonical JSON
	Traceparent string // empty = none
}

// Observed is what an execute call was seen to come to (docs/downstream.md).
type Observed string

// The observations. InProgress is untyped because it is both an observation
// and the answer to a question.
const (
	Succeeded       Observed = "succeeded"         // proof of the effect
	Rejected        Observed = "rejected"          // the downstream says that it did not do it
	TryAgain        Observed = "try_again"         // nothing was done, it may be tried again
	NotSent         Observed = "not_sent"          // no byte of the request left this process
	MayHaveHappened Observed = "may_have_happened" // nobody can say

	InProgress = "in_progress" // the downstream is still at it
)

// Outcome is an observation with its evidence.
type Outcome struct {
	Observed Observed
	// Code is short and stable: http_503, dns, connect, exit_3, signal_9,
	// timeout, panic.
	Code      string
	Result    []byte // canonical JSON, or nil
	Reference string // the downstream's own name for the effect, if it gave one
	Excerpt   string // at most MaxExcerpt bytes of evidence, safe to store and print
	// RetryAfter is how long the downstream wants to be left alone, if
	// HasRetryAfter: zero is a wish too.
	RetryAfter    time.Duration
	HasRetryAfter bool
	// Answered says that the attempt is known to be over: a complete answer
	// other than 502 and 504, a process that ended with its whole group, or a
	// request that never left.
	Answered bool
	// FollowUps are enqueued in the commit of a success.
	FollowUps []FollowUp
	// Err is for the log only, never stored or shown: the error or the stack
	// of a Go function, at most 4 KiB.
	Err error
}

// FollowUp is an operation on another tool that follows from a success: an ordinary
// one, of the same tenant and subject, whose parent is the operation that succeeded.
type FollowUp struct {
	Tool      string
	Key       string // empty: the parent's status_ref and the place in the list
	Arguments []byte // any JSON value
	InSession bool   // its end is told to the session and turn that the parent names
}

// Found is the answer to a question about a wire key.
type Found string

// The answers, beside InProgress.
const (
	Applied    Found = "applied"     // proof of the effect
	NotApplied Found = "not_applied" // no effect so far; whether it counts is not decided here
	Conflict   Found = "conflict"    // the key stands for something else there
	NoAnswer   Found = "no_answer"   // nothing was learnt
)

// Answer is what a question brought, with its evidence. The fields mean what
// they mean in Outcome.
type Answer struct {
	Found         Found
	Code          string
	Result        []byte
	Reference     string
	Excerpt       string
	RetryAfter    time.Duration
	HasRetryAfter bool
	Err           error
}

// Handler makes one attempt. The context carries its time limit; when the
// context ends the attempt is ended. Execute returns when the attempt is over
// for this process.
type Handler interface {
	Execute(ctx context.Context, c Call) Outcome
}

// Asker asks the downstream what became of a wire key. The context carries the
// question's time limit.
type Asker interface {
	Ask(ctx context.Context, c Call) Answer
}

// The codes of an attempt that was ended by its context.
const (
	codeTimeout   = "timeout"
	codeCancelled = "cancelled"
)

// endedBy names what ended a context.
func endedBy(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return codeTimeout
	}
	return codeCancelled
}
