// Package point is where a run of the real daemon can be made to die, stand still
// or be late: a closed list of names, and a hook at each of them.
//
// The hooks are always compiled in, so that the binary that is tested is the one
// that is shipped; one that is off costs a load and a comparison. Nothing is on
// unless Arm was called, which only a hidden flag of the daemon does, and only for
// a database that was created for it (ledger.Options.ForChaos). The package imports
// nothing of ours, so that every other one may call it. What must be true
// afterwards is package chaos's business.
package point

import (
	"sync/atomic"
)

// Point is one of the places.
type Point uint8

// Kind is what a commit is about; a commit of many closures has several.
type Kind uint8

// The kinds of commits. Each has two points: before its COMMIT, and after it but
// before anybody is answered.
const (
	Boot       Kind = iota // the boot record
	Migrate                // one step of a migration
	Accept                 // a new operation and its entry
	Claim                  // an entry is claimed
	Mark                   // the send marker
	Heartbeat              // leases are renewed
	Settle                 // a receipt, and the end of its entry
	Retry                  // pending again
	Unknown                // unknown, or still unknown
	Ask                    // a question is begun
	Bury                   // dead
	Review                 // a person's decision
	Project                // a result into a session's turn
	Purge                  // what ended long ago is forgotten
	Restore                // a file is put in the place of another
	Checkpoint             // the log is copied into the database
	Batch                  // any commit that holds more than one closure
	kinds
)

// The points around a send: right before the handler is called, after a request
// (or a question) has left and before its answer is read, and after the handler
// returned.
const (
	SendBefore Point = Point(2*kinds) + iota
	SendSent
	SendAnswered
	points
)

var kindNames = [kinds]string{"boot", "migrate", "accept", "claim", "mark", "heartbeat", "settle", "retry", "unknown",
	"ask", "bury", "review", "project", "purge", "restore", "checkpoint", "batch"}

// Before is the point before the COMMIT of a kind.
func (k Kind) Before() Point { return Point(2 * k) }

// After is the point after it, before anybody is answered.
func (k Kind) After() Point { return Point(2*k) + 1 }

// String is the point's name.
func (p Point) String() string {
	switch {
	case p >= points:
		return "?"
	case p >= SendBefore:
		return [...]string{"send.before", "send.sent", "send.answered"}[p-SendBefore]
	case p%2 == 0:
		return kindNames[p/2] + ".before"
	}
	return kindNames[p/2] + ".after"
}

// All is the closed list.
func All() []Point {
	list := make([]Point, points)
	for i := range list {
		list[i] = Point(i)
	}
	return list
}

// Named is the point of a name.
func Named(name string) (Point, bool) {
	for _, p := range All() {
		if p.String() == name {
			return p, true
		}
	}
	return 0, false
}

// Set is the kinds of one commit.
type Set uint32

// Add puts a kind into the set.
func (s *Set) Add(k Kind) { *s |= 1 << k }

// armed is what is on; nil: nothing. It is the one global of the module: a hook
// that had to be handed down would be in every signature.
var armed atomic.Pointer[arming]

// Hit is the hook.
func Hit(p Point) {
	if a := armed.Load(); a != nil {
		a.hit(p)
	}
}

// Before is the hook before the COMMIT of what is in the set.
func (s Set) Before() {
	if a := armed.Load(); a != nil {
		a.all(s, Kind.Before)
	}
}

// After is the hook after that COMMIT, before anybody is answered.
func (s Set) After() {
	if a := armed.Load(); a != nil {
		a.all(s, Kind.After)
	}
}
