package entry_test

import (
	"time"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// events is what may happen: each changes the model if docs/states.md lets it, says
// whether it expects ErrStale, and asks the same of the file.
func (x *machine) events() map[entry.Event]func(*ledger.Tx) error {
	return map[entry.Event]func(*ledger.Tx) error{
		entry.Claim:        x.claim,
		entry.ClaimMarked:  x.claim,
		entry.Mark:         x.mark,
		entry.Drain:        x.drain,
		entry.GuardRefuses: func(tx *ledger.Tx) error { return x.nothing(tx, entry.GuardRefuses) },
		entry.Again:        func(tx *ledger.Tx) error { return x.nothing(tx, entry.Again) },
		entry.Reject:       func(tx *ledger.Tx) error { return x.nothing(tx, entry.Reject) },
		entry.Reapproval:   x.reapprove,
		entry.Succeed:      x.deliver,
		entry.Applied:      x.deliver,
		entry.LateSuccess:  x.deliver,
		entry.Maybe:        func(tx *ledger.Tx) error { return x.doubt(tx, entry.Maybe) },
		entry.CutOff:       func(tx *ledger.Tx) error { return x.doubt(tx, entry.CutOff) },
		entry.LeaseOver:    x.lapse,
		entry.AskOver:      x.lapse,
		entry.Ask:          func(tx *ledger.Tx) error { return x.question(tx, false) },
		entry.Reconcile:    func(tx *ledger.Tx) error { return x.question(tx, true) },
		entry.Conflict:     func(tx *ledger.Tx) error { return x.still(tx, entry.Conflict) },
		entry.TooEarly:     func(tx *ledger.Tx) error { return x.still(tx, entry.TooEarly) },
		entry.NoAnswer:     func(tx *ledger.Tx) error { return x.still(tx, entry.NoAnswer) },
		entry.NotApplied:   x.notApplied,
		entry.LateNothing:  x.lateNothing,
		entry.Limit:        x.limit,
		entry.ReviewRetry:  x.retry,
		entry.ResolveNot:   x.resolveNot,
		entry.ResolveDone:  x.resolveDone,
		entry.Discard:      func(tx *ledger.Tx) error { return x.drop(tx, entry.Discard, entry.Dead, entry.Unknown) },
		entry.Refuse:       func(tx *ledger.Tx) error { return x.drop(tx, entry.Refuse, entry.Waiting) },
		entry.Cancel:       x.cancel,
		entry.Approve:      x.approve,
		entry.Restored:     x.restored,
	}
}

// claim: idempotent and local go straight to sending.
func (x *machine) claim(tx *ledger.Tx) error {
	marked := x.m.effect == entry.Idempotent || x.m.effect == entry.Local
	x.event = entry.Claim
	if marked {
		x.event = entry.ClaimMarked
	}
	l := x.lease(tx)
	d := x.due(tx)
	if x.m.State == entry.Pending && !x.m.Due.After(tx.Now()) {
		x.granted(tx, l)
		x.m.State, x.m.Claim = entry.Claimed, l.Token
		x.m.Attempts++
		if marked {
			x.m.marked(l.Token, tx.Now(), l.Over)
		}
	}
	h, err := entry.Take(tx, d, l, marked)
	if err == nil {
		x.held = append(x.held, h)
	}
	return err
}

func (x *machine) mark(tx *ledger.Tx) error {
	h := x.right()
	over := tx.Now().Add(overTime)
	if h.State == entry.Claimed && x.m.holds(h) {
		x.stale = false
		x.m.marked(h.Token, tx.Now(), over)
	}
	h.State = entry.Claimed // who marks thinks so
	h, err := entry.Hand(tx, h, over)
	if err == nil {
		x.held = append(x.held, h)
	}
	return err
}

// drain gives back an entry of which nothing was handed over.
func (x *machine) drain(tx *ledger.Tx) error {
	h := x.attempt()
	if x.m.holds(h) {
		x.stale = false
		x.m.over(h.Token, tx.Now())
		x.m.void(h.Token)
		x.m.to(entry.Pending, tx.Now(), "")
		x.m.Attempts--
	}
	return h.Undo(tx)
}

// attempt is a right to an attempt: questions are not drained or guarded so.
func (x *machine) attempt() entry.Held {
	h := x.right()
	if h.State == entry.Unknown {
		h.State = entry.Sending
	}
	return h
}

func (x *machine) nothing(tx *ledger.Tx, e entry.Event) error {
	h := x.attempt()
	if e != entry.GuardRefuses {
		h.State = entry.Sending
	}
	n := entry.Nothing{Event: e, At: x.soon(), Evidence: evidence("nothing"), GiveUp: x.reason("rejected")}
	if e == entry.Reject {
		n.GiveUp = "rejected"
	}
	if x.m.holds(h) {
		x.stale = false
		x.m.over(h.Token, tx.Now())
		x.m.void(h.Token)
		x.m.Failures++
		x.m.Suspect = false
		x.m.Evidence++
		x.again(n.At, n.GiveUp)
	}
	_, err := h.Nothing(tx, n)
	return err
}

// again: tried again at a time or, with a reason, given up.
func (x *machine) again(at time.Time, giveUp string) {
	if giveUp != "" {
		x.m.giveUp(giveUp)
		return
	}
	x.m.to(entry.Pending, at, "")
}

// reason is "" as long as no limit is reached.
func (x *machine) reason(why string) string {
	if x.oneIn(4, "limit") {
		return why
	}
	return ""
}

func (x *machine) reapprove(tx *ledger.Tx) error {
	h := x.attempt()
	unproven := x.m.earlier(h.Token)
	if x.m.holds(h) {
		x.stale = false
		x.m.over(h.Token, tx.Now())
		x.m.void(h.Token)
		x.m.Suspect = false
		x.m.Evidence++
		if unproven {
			x.m.to(entry.Unknown, time.Time{}, "reapproval_required")
		} else {
			x.m.to(entry.Waiting, time.Time{}, "reapproval_required")
		}
	}
	_, err := h.Reapprove(tx, unproven, evidence("blocked"))
	return err
}

// deliver: the holder's success, an answer to a question, or a success that
// comes late but carries the token of the last claim.
func (x *machine) deliver(tx *ledger.Tx) error {
	h := x.right()
	if h.State == entry.Claimed {
		h.State = entry.Sending
	}
	late := h.State == entry.Sending && h.Token == x.m.Claim && (x.m.State == entry.Pending || x.m.State == entry.Unknown)
	switch {
	case late:
		x.event = entry.LateSuccess
	case h.State == entry.Unknown:
		x.event = entry.Applied
	default:
		x.event = entry.Succeed
	}
	if x.m.holds(h) || late {
		x.stale = false
		x.m.to(entry.Delivered, time.Time{}, "")
		x.m.Suspect = false
		x.m.Receipts++
	}
	return entry.Deliver(tx, h, entry.Receipt{Result: []byte(`{}`), How: entry.Fresh})
}

// doubt: by class sent again, asked about, or left to a person.
func (x *machine) doubt(tx *ledger.Tx, e entry.Event) error {
	h := x.attempt()
	h.State = entry.Sending
	n := entry.Doubt{Event: e, To: entry.Unknown, Over: x.oneIn(2, "answered"), Reason: "unproven", Evidence: evidence("maybe")}
	switch x.m.effect {
	case entry.Idempotent, entry.Local:
		n.To, n.At, n.Reason = entry.Pending, x.soon(), ""
	case entry.Queryable:
		n.At = x.soon()
	}
	if x.m.holds(h) {
		x.stale = false
		if n.Over {
			x.m.over(h.Token, tx.Now())
		}
		if e == entry.Maybe && n.To == entry.Pending {
			x.m.Failures++
		}
		x.m.Suspect = false
		x.m.Evidence++
		x.m.to(n.To, n.At, n.Reason)
	}
	_, err := h.Doubt(tx, n)
	return err
}

func (x *machine) lapse(tx *ledger.Tx) error {
	h := x.right()
	x.event = entry.LeaseOver
	if h.State == entry.Unknown {
		x.event = entry.AskOver
	}
	if x.m.holds(h) {
		x.stale = false
		x.m.Evidence++
		if h.State == entry.Unknown {
			x.m.to(entry.Unknown, tx.Now(), x.m.Reason)
		} else {
			x.m.lapse(tx.Now())
		}
	}
	return h.Lapse(tx)
}

// limit: a limit is reached at the settle or, while nobody has it, at the claim.
func (x *machine) limit(tx *ledger.Tx) error {
	if x.m.State == entry.Claimed || x.m.State == entry.Sending {
		return x.exhausted(tx)
	}
	d := x.due(tx)
	if d.State != entry.Pending {
		d.State = entry.Unknown
	}
	if x.m.State == d.State && x.m.Token == 0 {
		x.stale = false
		x.m.giveUp("too_old")
	}
	_, err := entry.Expire(tx, d, "too_old")
	return err
}

func (x *machine) exhausted(tx *ledger.Tx) error {
	h := x.attempt()
	over := x.oneIn(2, "answered")
	if x.m.holds(h) {
		x.stale = false
		if over {
			x.m.over(h.Token, tx.Now())
		}
		x.m.Failures++
		x.m.Suspect = false
		x.m.Evidence++
		x.m.giveUp("attempts_exhausted")
	}
	_, err := h.GiveUp(tx, "attempts_exhausted", over, evidence("maybe"))
	return err
}
