// Package entry is the state machine of an operation's outbox row, the only
// mutable state there is.
//
// It decides *if* a transition is still allowed: the table in Transitions is
// all there is, and each transition is one conditional UPDATE on the row's id,
// its state and, where it is leased, the token. The row count is the answer:
// ErrStale means that somebody else has moved the row, and nothing was changed.
//
// It promises that a row is dead only when nothing that was ever sent for it is
// unproven. *Whether* a transition should be made is decided above: poller,
// deadletter, lease. It owns outbox_entry, outbox_attempt and outbox_receipt.
package entry

import (
	"errors"
	"time"
)

// State is where an entry stands.
type State string

// The states. An entry that is being asked about stays Unknown and has a token.
const (
	Waiting   State = "waiting"   // for an approval
	Pending   State = "pending"   // to be attempted when due
	Claimed   State = "claimed"   // leased, nothing handed over
	Sending   State = "sending"   // leased, the request may have left
	Unknown   State = "unknown"   // it may have taken effect; due: will be asked, held: waits for a person
	Delivered State = "delivered" // with a receipt
	Dead      State = "dead"      // given up, with proof of no effect
	Discarded State = "discarded" // by a person
)

// States lists every state, in the order of an entry's life.
var States = []State{Waiting, Pending, Claimed, Sending, Unknown, Delivered, Dead, Discarded}

// Terminal reports whether only a review brings an entry out of s.
func (s State) Terminal() bool { return s == Delivered || s == Dead || s == Discarded }

// Status is the word for s in answers (docs/reference/api.md).
func (s State) Status() string {
	switch s {
	case Claimed, Sending:
		return "in_progress"
	case Delivered:
		return "succeeded"
	}
	return string(s)
}

var (
	// ErrStale says that the row is no longer in the state, or under the token, that the
	// transition starts from. Nothing was changed.
	ErrStale = errors.New("entry has moved on: this token or state is no longer its own")
	// ErrRunning says that the last attempt is not known to be over, so that a new
	// round could run beside it. Nothing was changed.
	ErrRunning = errors.New("the last attempt may still be running")
	// ErrNotFound says that there is no such entry.
	ErrNotFound = errors.New("no such entry")
)

// Held is the right to settle one attempt, or one question.
type Held struct {
	ID      int64
	Token   int64
	Attempt int
	Round   int
	State   State // Claimed, Sending, or Unknown for a question
	Untold  bool  // nothing follows from its success
}

// Evidence is what is kept of an attempt that did not end in a receipt.
type Evidence struct {
	Kind    Kind
	Phase   string // how far it had come: claimed, sending, asked
	Class   string // what was observed
	Code    string // stable and short
	Excerpt string // capped, without secrets
}

// Kind of evidence.
type Kind string

// The kinds.
const (
	Outcome Kind = "outcome" // an attempt's end
	Lapse   Kind = "lapse"   // its lease ran out or its process ended
	Late    Kind = "late"    // it came after somebody else had taken over
	Query   Kind = "query"   // an answer to a question
	Blocked Kind = "blocked" // a guard refused before anything was handed over
)

// How a receipt came about.
type How string

// The ways to a receipt.
const (
	Fresh      How = "fresh"
	Reconciled How = "receipt_reconciled"
	Resolved   How = "resolved"
)

// Receipt is the recorded proof of success.
type Receipt struct {
	Result    []byte // canonical JSON, nil: none
	ResultSum [32]byte
	Binding   [32]byte
	Reference string
	How       How
}

// Due is an entry whose time has come.
type Due struct {
	ID            int64
	Tool          string
	State         State
	DueAt         time.Time
	Owner         int64 // 0: nobody
	Token         int64 // 0: nobody's
	ClaimToken    int64
	LastSentAt    time.Time // zero: never
	OverAt        time.Time // when the last attempt is known to be over; zero: nothing was sent
	UnprovenSince time.Time // zero: nothing unproven
	Attempts      int
	Failures      int
	Lapses        int
	Queries       int
	Suspect       bool
	Round         int
	RoundAt       time.Time
	RoundExcused  time.Duration
}
