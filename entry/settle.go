package entry

import (
	"fmt"
	"time"

	"github.com/outboxd/outboxd/chaos/point"
	"github.com/outboxd/outboxd/ledger"
)

// Deliver records the receipt and ends the entry. A token that is no longer the
// entry's may still deliver while its claim is the last one and nobody has the
// lease, or only a question has: Events Succeed, Applied, LateSuccess.
func Deliver(tx *ledger.Tx, h Held, r Receipt) error {
	var err error
	switch h.State {
	case Sending:
		err = deliver(tx, h)
	case Unknown:
		_, err = move{event: Applied, id: h.ID, from: Unknown, token: h.Token, to: Delivered}.apply(tx)
	default:
		err = demand(h.State, Succeed, Delivered)
	}
	if err != nil {
		return err
	}
	if h.State == Sending && !h.Untold {
		tx.Ended(h.ID)
	}
	return insertReceipt(tx, h, r)
}

// The statements of a success, lean because almost every attempt ends with the
// first of them.
const (
	deliverSQL = `UPDATE outbox_entry SET state = 'delivered', due_at = NULL, owner = NULL, token = NULL,
		suspect = 0, reason = NULL, changed_at = ?1
		WHERE operation_id = ?2 AND state = 'sending' AND token = ?3`
	deliverLateSQL = `UPDATE outbox_entry SET state = 'delivered', due_at = NULL, owner = NULL, token = NULL,
		suspect = 0, reason = NULL, changed_at = ?1
		WHERE operation_id = ?2 AND claim_token = ?3 AND (state = 'unknown' OR state = 'pending')`
)

func deliver(tx *ledger.Tx, h Held) error {
	n, err := tx.Exec(deliverSQL, tx.Now(), h.ID, h.Token)
	if err == nil && n == 0 {
		n, err = tx.Exec(deliverLateSQL, tx.Now(), h.ID, h.Token)
	}
	return changedOne(n, err, Succeed)
}

func insertReceipt(tx *ledger.Tx, h Held, r Receipt) error {
	n, err := tx.Exec(`INSERT INTO outbox_receipt
		(operation_id, result, result_sha256, call_binding_sha256, reference, attempt, token, how, at)
		VALUES (?, ?, ?, ?, NULLIF(?, ''), ?, ?, ?, ?)`, h.ID, nullText(r.Result), r.ResultSum[:], r.Binding[:],
		r.Reference, h.Attempt, h.Token, r.How, tx.Now())
	if err == nil && n == 0 {
		err = ledger.ErrIgnored
	}
	if err != nil {
		return fmt.Errorf("insert receipt: %w", err)
	}
	tx.For(point.Settle)
	return nil
}

func nullText(b []byte) any {
	if b == nil {
		return nil
	}
	return string(b)
}

// Nothing is how an attempt that is proven to have done nothing goes on.
type Nothing struct {
	Event    Event // Again, GuardRefuses or Reject
	At       time.Time
	Evidence Evidence
	GiveUp   string // the reason, when a limit is reached; "": it is tried again at At
}

// Nothing settles an attempt that did nothing: its own send is void, the failure
// counts, and the entry is pending again or given up.
func (h Held) Nothing(tx *ledger.Tx, n Nothing) (State, error) {
	m := move{event: n.Event, id: h.ID, from: h.State, token: h.Token, to: Pending, due: n.At,
		void: voidOwn, failures: 1, over: tx.Now()}
	if n.GiveUp != "" {
		m.to, m.due, m.reason = "", time.Time{}, n.GiveUp
	}
	return h.settle(tx, m, n.Evidence)
}

// Doubt is how an attempt that may have taken effect goes on.
type Doubt struct {
	Event    Event // Maybe, or CutOff, which leaves the counters alone
	To       State // Pending (sent again with the same key) or Unknown
	At       time.Time
	Over     bool   // a complete answer was received: nothing of it happens later
	Reason   string // for Unknown
	Evidence Evidence
}

// Doubt settles an attempt of which nobody knows whether it took effect. Unknown
// with a zero At is held.
func (h Held) Doubt(tx *ledger.Tx, n Doubt) (State, error) {
	m := move{event: n.Event, id: h.ID, from: h.State, token: h.Token, to: n.To, due: n.At, reason: n.Reason}
	if n.Event == Maybe && n.To == Pending {
		m.failures = 1
	}
	if n.Over {
		m.over = tx.Now()
	}
	return h.settle(tx, m, n.Evidence)
}

// GiveUp ends the attempts of an entry that may have taken effect: with its
// unproven send that is unknown, held.
func (h Held) GiveUp(tx *ledger.Tx, reason string, over bool, ev Evidence) (State, error) {
	m := move{event: Limit, id: h.ID, from: h.State, token: h.Token, reason: reason, failures: 1}
	if over {
		m.over = tx.Now()
	}
	return h.settle(tx, m, ev)
}

// Undo gives back an entry of which nothing was handed over: its mark is undone
// and the attempt does not count. Event: Drain.
func (h Held) Undo(tx *ledger.Tx) error {
	_, err := move{event: Drain, id: h.ID, from: h.State, token: h.Token, to: Pending, due: tx.Now(),
		void: voidOwn, uncount: 1, suspect: keepSuspect, over: tx.Now()}.apply(tx)
	return err
}

func (h Held) settle(tx *ledger.Tx, m move, ev Evidence) (State, error) {
	to, err := m.apply(tx)
	if err != nil {
		return "", err
	}
	return to, Record(tx, h, ev)
}

// Record keeps evidence of an attempt. It never changes the entry. Of an operation
// that has been purged meanwhile nothing is kept.
func Record(tx *ledger.Tx, h Held, ev Evidence) error {
	_, err := tx.Exec(`INSERT INTO outbox_attempt
		(operation_id, attempt, round, kind, token, phase, class, code, excerpt, at)
		SELECT id, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 FROM outbox_operation WHERE id = ?1`,
		h.ID, h.Attempt, h.Round, ev.Kind, h.Token, ev.Phase, ev.Class, ev.Code, ev.Excerpt, tx.Now())
	if err != nil {
		return fmt.Errorf("record evidence: %w", err)
	}
	return nil
}
