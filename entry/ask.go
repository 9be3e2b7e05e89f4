package entry

import (
	"time"

	"github.com/outboxd/outboxd/ledger"
)

// StillUnknown returns an entry that was asked about, with nothing proven.
type StillUnknown struct {
	Event    Event     // Conflict, TooEarly, NoAnswer or AskOver
	At       time.Time // the next question; zero: held
	Over     time.Time // when the attempt is known to be over, where that is corrected; zero: as it was
	Reason   string    // "": as it was
	Evidence Evidence
}

// StillUnknown settles a question that proved nothing. NoAnswer counts.
func (h Held) StillUnknown(tx *ledger.Tx, n StillUnknown) (State, error) {
	m := move{event: n.Event, id: h.ID, from: Unknown, token: h.Token, to: Unknown, due: n.At,
		reason: n.Reason, over: n.Over, suspect: keepSuspect}
	if n.Event == NoAnswer {
		m.queries = 1
	}
	return h.settle(tx, m, n.Evidence)
}

// NotApplied settles a question whose answer counts: no send so far had an
// effect. The entry is pending again at due or, with a reason, dead. A suspect
// stays one: it was asked about, not attempted.
func (h Held) NotApplied(tx *ledger.Tx, due time.Time, giveUp string, ev Evidence) (State, error) {
	m := move{event: NotApplied, id: h.ID, from: Unknown, token: h.Token, to: Pending, due: due,
		void: voidAll, failures: 1, asked: true, suspect: keepSuspect}
	if giveUp != "" {
		m.to, m.due, m.reason = "", time.Time{}, giveUp
	}
	return h.settle(tx, m, ev)
}

// LateNothing believes a late proof of no effect of an entry's last claim, while
// nobody has it: that send is void, and the entry goes on. A suspect stays one:
// the attempt's lease did lapse.
func (h Held) LateNothing(tx *ledger.Tx, due time.Time, giveUp string, ev Evidence) (State, error) {
	m := move{event: LateNothing, id: h.ID, from: Unknown, claim: h.Token, to: Pending, due: due,
		void: voidOwn, failures: 1, over: tx.Now(), suspect: keepSuspect}
	if giveUp != "" {
		m.to, m.due, m.reason = "", time.Time{}, giveUp
	}
	return h.settle(tx, m, ev)
}

// Expire gives up an entry that nobody holds because a limit is reached.
// Event: Limit.
func Expire(tx *ledger.Tx, d Due, reason string) (State, error) {
	return move{event: Limit, id: d.ID, from: d.State, reason: reason, suspect: keepSuspect}.apply(tx)
}
