package entry_test

import (
	"slices"
	"time"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// question: the entry stays unknown, the claim's token stays its own.
func (x *machine) question(tx *ledger.Tx, force bool) error {
	l := x.lease(tx)
	d := x.due(tx)
	due := !x.m.Due.IsZero() && !x.m.Due.After(tx.Now())
	if x.m.State == entry.Unknown && x.m.Token == 0 && (due || force) {
		x.granted(tx, l)
	}
	h, err := entry.Question(tx, d, l, force)
	if err == nil {
		x.held = append(x.held, h)
	}
	return err
}

// still: the answer proved nothing. It is asked again at a time, or held.
func (x *machine) still(tx *ledger.Tx, e entry.Event) error {
	h := x.right()
	h.State = entry.Unknown
	n := entry.StillUnknown{Event: e, At: x.soon(), Reason: x.reason("unproven"), Evidence: evidence("query")}
	switch {
	case e == entry.Conflict:
		n.At = time.Time{}
	case e == entry.NoAnswer && x.oneIn(4, "limit"):
		n.At = time.Time{}
	case e == entry.TooEarly && x.oneIn(2, "corrected"):
		n.Over = n.At
	}
	if x.m.holds(h) {
		x.stale = false
		x.m.Evidence++
		if e == entry.NoAnswer {
			x.m.Queries++
		}
		if !n.Over.IsZero() {
			x.m.Over = n.Over
		}
		reason := n.Reason
		if reason == "" {
			reason = x.m.Reason
		}
		x.m.to(entry.Unknown, n.At, reason)
	}
	_, err := h.StillUnknown(tx, n)
	return err
}

// notApplied: the answer counts, so no send so far had an effect.
func (x *machine) notApplied(tx *ledger.Tx) error {
	h := x.right()
	h.State = entry.Unknown
	at, giveUp := x.soon(), x.reason("attempts_exhausted")
	if x.m.holds(h) {
		x.stale = false
		x.m.sends = nil
		x.m.Failures++
		x.m.Queries = 0
		x.m.Evidence++
		x.again(at, giveUp)
	}
	_, err := h.NotApplied(tx, at, giveUp, evidence("query"))
	return err
}

// lateNothing is believed of the last claim, while nobody has the entry.
func (x *machine) lateNothing(tx *ledger.Tx) error {
	h := x.right()
	at, giveUp := x.soon(), x.reason("rejected")
	if x.m.State == entry.Unknown && x.m.Token == 0 && x.m.Claim == h.Token {
		x.stale = false
		x.m.over(h.Token, tx.Now())
		x.m.void(h.Token)
		x.m.Failures++
		x.m.Evidence++
		x.again(at, giveUp)
	}
	_, err := h.LateNothing(tx, at, giveUp, evidence("late"))
	return err
}

// reviewed: a review takes the entry away from whoever has it.
func (x *machine) reviewed(to entry.State, due time.Time, reason string) {
	x.stale = false
	x.m.to(to, due, reason)
	x.m.Claim = 0
}

// running: the last attempt is not known to be over.
func (x *machine) running(now time.Time) bool { return x.m.Over.After(now) }

func (x *machine) retry(tx *ledger.Tx) error {
	at, from := x.soon(), x.m.State
	if from != entry.Dead && from != entry.Unknown {
		from = entry.Dead
	} else if x.busy = x.running(tx.Now()); !x.busy {
		x.reviewed(entry.Pending, at, "")
		x.m.Round++
		x.m.round(at, 9000)
	}
	return entry.RetryReviewed(tx, x.id, from, at, 9*time.Second)
}

func (x *machine) resolveNot(tx *ledger.Tx) error {
	at := x.soon()
	x.busy = x.m.State == entry.Unknown && x.running(tx.Now())
	if x.m.State == entry.Unknown && !x.busy {
		x.reviewed(entry.Pending, at, "")
		x.m.sends = nil
		x.m.Round++
		x.m.round(at, 9000)
	}
	return entry.ResolveNotApplied(tx, x.id, at, 9*time.Second)
}

func (x *machine) resolveDone(tx *ledger.Tx) error {
	d := x.due(tx)
	if x.m.State == entry.Unknown {
		x.reviewed(entry.Delivered, time.Time{}, "")
		x.m.Receipts++
	}
	return entry.ResolveApplied(tx, d, entry.Receipt{Reference: "seen at the bank"})
}

func (x *machine) drop(tx *ledger.Tx, e entry.Event, states ...entry.State) error {
	from := states[0]
	if slices.Contains(states, x.m.State) {
		from = x.m.State
		x.reviewed(entry.Discarded, time.Time{}, "not wanted")
	}
	return entry.Drop(tx, e, x.id, from, "not wanted")
}

func (x *machine) cancel(tx *ledger.Tx) error {
	switch {
	case x.m.State != entry.Pending && x.m.State != entry.Waiting:
	case len(x.m.sends) > 0:
		x.stale = false
		x.m.to(entry.Unknown, time.Time{}, "cancelled")
	default:
		x.stale = false
		x.m.to(entry.Discarded, time.Time{}, "cancelled")
	}
	_, err := entry.Withdraw(tx, x.id)
	return err
}

// approve begins a round: a new one where there were attempts before.
func (x *machine) approve(tx *ledger.Tx) error {
	at := x.soon()
	if x.m.State == entry.Waiting {
		x.stale = false
		x.m.to(entry.Pending, at, "")
		x.m.round(at, 9000)
		if x.m.Attempts > 0 {
			x.m.Round++
		}
	}
	return entry.Release(tx, x.id, at, 9*time.Second)
}
