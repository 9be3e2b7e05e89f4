package entry

import (
	"errors"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/chaos/point"
	"github.com/outboxd/outboxd/ledger"
)

// A review takes the entry away from whoever holds it: owner and tokens are
// cleared, so that an answer in flight becomes late evidence. While a restored file
// is held, every review answers ledger.ErrHeld.

const newRoundSQL = `UPDATE outbox_entry SET state = 'pending', due_at = ?1, owner = NULL, token = NULL, claim_token = 0,
	unproven_since = IIF(?2, NULL, unproven_since), unproven_by = IIF(?2, NULL, unproven_by),
	failures = 0, lapses = 0, queries = 0, suspect = 0,
	round = round + 1, round_at = ?1, round_excused = ?3, reason = NULL, changed_at = ?4
	WHERE operation_id = ?5 AND state = ?6 AND (over_at IS NULL OR over_at <= ?4)`

// RetryReviewed begins a new round of a dead or unknown entry, or answers
// ErrRunning. Sends that are unproven stay so. Event: ReviewRetry.
func RetryReviewed(tx *ledger.Tx, id int64, from State, due time.Time, excused time.Duration) error {
	return newRound(tx, ReviewRetry, id, from, due, excused, false)
}

// ResolveNotApplied records a person's word that no send had an effect and
// begins a new round, or answers ErrRunning. Event: ResolveNot.
func ResolveNotApplied(tx *ledger.Tx, id int64, due time.Time, excused time.Duration) error {
	return newRound(tx, ResolveNot, id, Unknown, due, excused, true)
}

func newRound(tx *ledger.Tx, e Event, id int64, from State, due time.Time, excused time.Duration, void bool) error {
	if err := firstError(demand(from, e, Pending), tx.Held()); err != nil {
		return err
	}
	n, err := tx.Exec(newRoundSQL, due, void, excused, tx.Now(), id, from)
	if err := changedOne(n, err, e); !errors.Is(err, ErrStale) {
		return reviewed(tx, err)
	}
	running := false
	err = tx.One(`SELECT EXISTS (SELECT 1 FROM outbox_entry WHERE operation_id = ?1 AND state = ?2 AND over_at > ?3)`,
		id, from, tx.Now()).Scan(&running)
	switch {
	case err != nil:
		return fmt.Errorf("look whether an attempt runs: %w", err)
	case running:
		return ErrRunning
	}
	return ErrStale
}

// Release lets a waiting entry go: its round begins, a new one where it has been
// attempted before. Event: Approve.
func Release(tx *ledger.Tx, id int64, due time.Time, excused time.Duration) error {
	if err := tx.Held(); err != nil {
		return err
	}
	n, err := tx.Exec(`UPDATE outbox_entry SET state = 'pending', due_at = ?1, round_at = ?1, round_excused = ?2,
		round = round + (attempts > 0), failures = 0, lapses = 0, queries = 0, suspect = 0, reason = NULL, changed_at = ?3 WHERE operation_id = ?4 AND state = 'waiting'`, due, excused, tx.Now(), id)
	return reviewed(tx, changedOne(n, err, Approve))
}

// ResolveApplied records a person's proof of the effect. Event: ResolveDone.
func ResolveApplied(tx *ledger.Tx, d Due, r Receipt) error {
	if err := end(tx, ResolveDone, d.ID, Unknown, Delivered, ""); err != nil {
		return err
	}
	r.How = Resolved
	return insertReceipt(tx, Held{ID: d.ID, Token: d.ClaimToken, Attempt: d.Attempts}, r)
}

// Drop ends a dead, unknown or waiting entry without an effect of ours.
// Events: Discard, Refuse.
func Drop(tx *ledger.Tx, e Event, id int64, from State, reason string) error {
	return end(tx, e, id, from, Discarded, reason)
}

func end(tx *ledger.Tx, e Event, id int64, from, to State, reason string) error {
	if err := firstError(demand(from, e, to), tx.Held()); err != nil {
		return err
	}
	n, err := tx.Exec(`UPDATE outbox_entry SET state = ?1, due_at = NULL, owner = NULL, token = NULL, claim_token = 0,
		reason = NULLIF(?2, ''), changed_at = ?3 WHERE operation_id = ?4 AND state = ?5`,
		to, reason, tx.Now(), id, from)
	tx.Ended(id)
	return reviewed(tx, changedOne(n, err, e))
}

// Withdraw cancels a pending or waiting entry: discarded or, with an unproven
// send, unknown and held. Event: Cancel.
func Withdraw(tx *ledger.Tx, id int64) (State, error) {
	if err := tx.Held(); err != nil {
		return "", err
	}
	var to State
	err := tx.One(`UPDATE outbox_entry SET state = IIF(unproven_since IS NULL, 'discarded', 'unknown'),
		due_at = NULL, reason = 'cancelled', changed_at = ?1
		WHERE operation_id = ?2 AND state IN ('pending', 'waiting') RETURNING state`, tx.Now(), id).Scan(&to)
	tx.Ended(id)
	return to, reviewed(tx, none(err, Cancel))
}

// Reapprove sends an attempt whose approval has expired back to wait for a new
// one; with an unproven send it is unknown and held. Event: Reapproval.
func (h Held) Reapprove(tx *ledger.Tx, unproven bool, ev Evidence) (State, error) {
	m := move{event: Reapproval, id: h.ID, from: h.State, token: h.Token, to: Waiting,
		reason: "reapproval_required", void: voidOwn, suspect: clearSuspect, over: tx.Now()}
	if unproven {
		m.to = Unknown
	}
	return h.settle(tx, m, ev)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// reviewed tells the crash points of the commit.
func reviewed(tx *ledger.Tx, err error) error {
	if err == nil {
		tx.For(point.Review)
	}
	return err
}

func changedOne(n int64, err error, e Event) error {
	if err != nil {
		return fmt.Errorf("move entry on %s: %w", e, err)
	}
	if n == 0 {
		return ErrStale
	}
	return nil
}
