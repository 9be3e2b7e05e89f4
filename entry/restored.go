package entry

import (
	"fmt"
	"time"

	"github.com/outboxd/outboxd/chaos/point"
	"github.com/outboxd/outboxd/ledger"
)

// ReasonRestored says that the file was put back from an older copy, and what was live in
// it may have been sent since the copy was made.
const ReasonRestored = "restored"

// Doubtful is an entry that a release has to treat.
type Doubtful struct {
	ID    int64
	Tool  string
	State State
}

// DoubtfulAfter lists up to n entries behind the one with id after whose round had
// begun when the copy was put back: they may have gone on since it was made. A
// local effect is in the file itself and was put back with it; what is held waits
// for a person as it is.
func DoubtfulAfter(q ledger.Querier, after int64, restored time.Time, n int) (list []Doubtful, err error) {
	err = q.Each(func(r *ledger.Row) error {
		var d Doubtful
		err := r.Scan(&d.ID, &d.Tool, &d.State)
		list = append(list, d)
		return err
	}, `SELECT e.operation_id, e.tool_name, e.state FROM outbox_entry e JOIN outbox_operation o ON o.id = e.operation_id
		WHERE e.operation_id > ?1 AND e.round_at < ?2 AND o.effect <> 'local'
		AND (e.state IN ('pending', 'claimed', 'sending', 'dead') OR e.state = 'unknown' AND e.due_at IS NOT NULL
			OR e.state = 'waiting' AND o.effect <> 'idempotent')
		ORDER BY e.operation_id LIMIT ?3`, after, restored, n)
	if err != nil {
		return nil, fmt.Errorf("list entries of a restored file: %w", err)
	}
	return list, nil
}

const restoredSQL = `UPDATE outbox_entry SET
	state = IIF(op.effect = 'idempotent' AND state IN ('pending', 'claimed', 'sending'), 'pending', 'unknown'),
	due_at = CASE WHEN op.effect = 'idempotent' AND state = 'pending' THEN due_at
		WHEN op.effect = 'idempotent' AND state IN ('claimed', 'sending') THEN ?1
		WHEN op.effect = 'queryable' AND state <> 'waiting' THEN ?1 END,
	reason = IIF(op.effect = 'idempotent' AND state IN ('pending', 'claimed', 'sending'), NULL, 'restored'),
	owner = NULL, token = NULL, claim_token = 0,
	unproven_since = COALESCE(unproven_since, ?2), unproven_by = COALESCE(unproven_by, 0),
	last_sent_at = MAX(COALESCE(last_sent_at, 0), ?2), over_at = MAX(COALESCE(over_at, 0), ?3),
	failures = 0, lapses = 0, queries = 0, suspect = 0,
	round = round + 1, round_at = ?1, round_excused = ?4, changed_at = ?1
	FROM (SELECT id, effect FROM outbox_operation WHERE id = ?5) AS op
	WHERE operation_id = op.id AND state = ?6 AND op.effect <> 'local'
	AND (state <> 'unknown' OR due_at IS NOT NULL) AND (state <> 'waiting' OR op.effect <> 'idempotent')
	AND state NOT IN ('delivered', 'discarded') RETURNING state`

// Doubt treats an entry as one that may have been sent up to restored, whose
// request is over at over. A new round begins: an idempotent one is sent again
// with its key, a queryable one is asked about, and whatever else, or was dead,
// is unknown and held. Event: Restored.
func (d Doubtful) Doubt(tx *ledger.Tx, restored, over time.Time, excused time.Duration) (State, error) {
	var to State
	err := tx.One(restoredSQL, tx.Now(), restored, over, excused, d.ID, d.State).Scan(&to)
	if err != nil {
		return "", none(err, Restored)
	}
	tx.For(point.Review)
	return to, demand(d.State, Restored, to)
}
