package entry

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/chaos/point"
	"github.com/outboxd/outboxd/ledger"
)

// Begin says how an entry is accepted.
type Begin struct {
	Due     time.Time     // earliest first attempt; the round begins then
	Waiting bool          // for an approval; Due is its deadline, zero: none
	Excused time.Duration // what the tool had been excused from aging so far
}

// Open inserts the entry of a new operation. Event: Accept.
func Open(tx *ledger.Tx, id int64, tool string, b Begin) error {
	state, round := Pending, b.Due
	if b.Waiting {
		state, round = Waiting, tx.Now()
	}
	n, err := tx.Exec(`INSERT INTO outbox_entry (operation_id, tool_name, state, due_at, round_at, round_excused, changed_at)
		VALUES (?, ?, ?, ?, ?, ?, ?)`, id, tool, state, b.Due, round, b.Excused, tx.Now())
	if err == nil && n == 0 {
		err = ledger.ErrIgnored
	}
	if err != nil {
		return fmt.Errorf("insert entry: %w", err)
	}
	tx.For(point.Accept)
	return nil
}

// Lease is what a claim, a mark or a question is made under.
type Lease struct {
	Token int64
	Until time.Time // when it lapses unless it is renewed
	Over  time.Time // when a request sent now is known to be over, whatever is heard of it; not zero with a mark
}

// The two forms of a claim. They are two because a claim is half of the row work
// of a delivery, and one statement for both costs a fifth more.
const (
	claimSQL = `UPDATE outbox_entry SET state = 'claimed', owner = ?1, token = ?2, claim_token = ?2, due_at = ?3,
		attempts = attempts + 1, changed_at = ?4
		WHERE operation_id = ?5 AND state = 'pending' AND due_at <= ?4`
	claimMarkedSQL = `UPDATE outbox_entry SET state = 'sending', owner = ?1, token = ?2, claim_token = ?2, due_at = ?3,
		attempts = attempts + 1, changed_at = ?4, last_sent_at = ?4,
		over_at = IIF(unproven_since IS NULL, ?6, MAX(?6, over_at)),
		unproven_since = COALESCE(unproven_since, ?4), unproven_by = COALESCE(unproven_by, ?2)
		WHERE operation_id = ?5 AND state = 'pending' AND due_at <= ?4`
)

// Take claims a pending entry that is due. With marked the claim is the send
// marker too. Events: Claim, ClaimMarked.
func Take(tx *ledger.Tx, d Due, l Lease, marked bool) (Held, error) {
	state, query, args := Claimed, claimSQL, []any{tx.Epoch(), l.Token, l.Until, tx.Now(), d.ID}
	if marked {
		state, query, args = Sending, claimMarkedSQL, append(args, l.Over)
	}
	n, err := tx.Exec(query, args...)
	if err != nil {
		return Held{}, fmt.Errorf("claim entry: %w", err)
	}
	if n == 0 {
		return Held{}, ErrStale
	}
	tx.For(point.Claim)
	return Held{ID: d.ID, Token: l.Token, Attempt: d.Attempts + 1, Round: d.Round, State: state}, nil
}

// Hand marks a claimed entry as sent, before the first byte leaves. Event: Mark.
func Hand(tx *ledger.Tx, h Held, over time.Time) (Held, error) {
	n, err := tx.Exec(`UPDATE outbox_entry SET state = 'sending', last_sent_at = ?1,
		over_at = IIF(unproven_since IS NULL, ?2, MAX(?2, over_at)),
		unproven_since = COALESCE(unproven_since, ?1), unproven_by = COALESCE(unproven_by, ?3), changed_at = ?1
		WHERE operation_id = ?4 AND state = 'claimed' AND token = ?3`, tx.Now(), over, h.Token, h.ID)
	if err != nil {
		return h, fmt.Errorf("mark entry: %w", err)
	}
	if n == 0 {
		return h, ErrStale
	}
	h.State = Sending
	tx.For(point.Mark)
	return h, nil
}

// Question takes the right to ask what became of an unknown entry. With force
// also one that is held, or not yet due. The claim's token stays, so that a late
// answer to the request itself is still believed. Events: Ask, Reconcile.
func Question(tx *ledger.Tx, d Due, l Lease, force bool) (Held, error) {
	n, err := tx.Exec(`UPDATE outbox_entry SET owner = ?1, token = ?2, due_at = ?3, changed_at = ?4
		WHERE operation_id = ?5 AND state = 'unknown' AND token IS NULL AND (?6 OR due_at <= ?4)`,
		tx.Epoch(), l.Token, l.Until, tx.Now(), d.ID, force)
	if err != nil {
		return Held{}, fmt.Errorf("ask about entry: %w", err)
	}
	if n == 0 {
		return Held{}, ErrStale
	}
	tx.For(point.Ask)
	return Held{ID: d.ID, Token: l.Token, Attempt: d.Attempts, Round: d.Round, State: Unknown}, nil
}

const renewSQL = `UPDATE outbox_entry SET due_at = IIF(owner = ?3, ?1, due_at)
	WHERE operation_id IN (SELECT value FROM json_each(?2)) AND token IS NOT NULL
	RETURNING operation_id, token`

// Renew moves the expiry of all leases that this process holds on ids, in one
// statement, and returns the token that each row has now, whoever holds it; a
// row that is missing is leased no longer.
func Renew(tx *ledger.Tx, ids []int64, until time.Time) (map[int64]int64, error) {
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, fmt.Errorf("encode ids: %w", err)
	}
	renewed := make(map[int64]int64, len(ids))
	err = tx.Each(func(r *ledger.Row) error {
		var id, token int64
		if err := r.Scan(&id, &token); err != nil {
			return err
		}
		renewed[id] = token
		return nil
	}, renewSQL, until, string(list), tx.Epoch())
	if err != nil {
		return nil, fmt.Errorf("renew leases: %w", err)
	}
	tx.For(point.Heartbeat)
	return renewed, nil
}
