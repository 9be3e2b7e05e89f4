package entry

import (
	"time"

	"github.com/outboxd/outboxd/chaos/point"
	"github.com/outboxd/outboxd/ledger"
)

// voiding says which of the sends so far are proven to have done nothing.
type voiding int

const (
	voidNone voiding = iota
	voidOwn          // the attempt's own send only
	voidAll          // every send: a counted "not applied", or a person
)

// keep, clear, set: what becomes of the mark of a suspect.
type suspicion int

const (
	keepSuspect  suspicion = -1
	clearSuspect suspicion = 0
)

// move is one transition of an entry out of a lease, a question or a wait. The
// zero value of each field changes nothing, but a suspect is cleared.
type move struct {
	event Event
	id    int64
	from  State
	token int64 // the present holder's; 0: nobody may hold it
	claim int64 // the last claim's, where a late answer is to be believed; 0: any

	to       State // "": give up, which is dead when nothing is left unproven, else unknown
	due      time.Time
	reason   string
	void     voiding
	uncount  int // attempts that do not count after all
	failures int
	queries  int
	asked    bool // queries start again at 0
	suspect  suspicion
	over     time.Time // the attempt is known to be over then; a send before it may still be unproven
}

// A move's own send is the one of its token or, for a late answer, of its claim.
func (m move) own() int64 {
	if m.claim != 0 {
		return m.claim
	}
	return m.token
}

// attempt reports whether an attempt is settled, not a question.
func (m move) attempt() bool { return m.from != Unknown || m.claim != 0 }

const moveSQL = `UPDATE outbox_entry SET
	state = CASE WHEN ?1 <> '' THEN ?1
		WHEN CASE ?2 WHEN 2 THEN NULL WHEN 1 THEN IIF(unproven_by = ?3, NULL, unproven_since) ELSE unproven_since END
			IS NULL THEN 'dead' ELSE 'unknown' END,
	unproven_since = CASE ?2 WHEN 2 THEN NULL WHEN 1 THEN IIF(unproven_by = ?3, NULL, unproven_since) ELSE unproven_since END,
	unproven_by = CASE ?2 WHEN 2 THEN NULL WHEN 1 THEN IIF(unproven_by = ?3, NULL, unproven_by) ELSE unproven_by END,
	due_at = ?4, owner = NULL, token = NULL,
	reason = CASE WHEN ?5 = '' AND ?1 = 'unknown' THEN reason ELSE NULLIF(?5, '') END,
	attempts = attempts - ?6, failures = failures + ?7,
	queries = IIF(?8, 0, queries + ?9),
	suspect = IIF(?10 < 0, suspect, ?10),
	over_at = CASE WHEN ?11 IS NULL OR (?17 AND unproven_by <> ?3) THEN over_at ELSE ?11 END, changed_at = ?12
	WHERE operation_id = ?13 AND state = ?14 AND token IS ?15 AND (?16 = 0 OR claim_token = ?16)`

// Only giving up leaves open where it leads. RETURNING costs a temporary table,
// which is a third of the statement.
const giveUpSQL = moveSQL + ` RETURNING state`

// apply makes the move if it is still allowed, and says where it led.
func (m move) apply(tx *ledger.Tx) (State, error) {
	if m.to != "" {
		if err := demand(m.from, m.event, m.to); err != nil {
			return "", err
		}
	}
	args := []any{m.to, int(m.void), m.own(), m.due, m.reason, m.uncount, m.failures, m.asked,
		m.queries, int(m.suspect), m.over, tx.Now(), m.id, m.from, holder(m.token), m.claim, m.attempt()}
	if m.to != "" {
		n, err := tx.Exec(moveSQL, args...)
		return m.to, m.moved(tx, m.to, changedOne(n, err, m.event))
	}
	var to State
	if err := tx.One(giveUpSQL, args...).Scan(&to); err != nil {
		return "", none(err, m.event)
	}
	return to, m.moved(tx, to, demand(m.from, m.event, to))
}

// moved tells the crash points of the commit where an entry went, and the
// transaction whether that is an end.
func (m move) moved(tx *ledger.Tx, to State, err error) error {
	if err == nil && (to.Terminal() || to == Unknown && m.due.IsZero()) {
		tx.Ended(m.id)
	}
	switch {
	case err != nil:
	case to == Unknown:
		tx.For(point.Unknown)
	case to == Dead:
		tx.For(point.Bury)
	case to != Delivered: // its receipt tells
		tx.For(point.Retry)
	}
	return err
}

func holder(token int64) any {
	if token == 0 {
		return nil
	}
	return token
}
