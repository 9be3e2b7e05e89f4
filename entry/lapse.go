package entry

import (
	"fmt"

	"github.com/outboxd/outboxd/chaos/point"
	"github.com/outboxd/outboxd/ledger"
)

const lapseSQL = `UPDATE outbox_entry SET
	state = CASE WHEN state = 'claimed' OR op.effect IN ('idempotent', 'local') THEN 'pending' ELSE 'unknown' END,
	due_at = IIF(state = 'sending' AND op.effect = 'opaque', NULL, ?1),
	reason = IIF(state = 'sending' AND op.effect IN ('queryable', 'opaque'), 'lapsed', NULL),
	unproven_since = IIF(op.effect = 'local', NULL, unproven_since), unproven_by = IIF(op.effect = 'local', NULL, unproven_by),
	owner = NULL, token = NULL, lapses = lapses + suspect, suspect = 1, changed_at = ?1
	FROM (SELECT id, effect FROM outbox_operation WHERE id = ?2) AS op
	WHERE operation_id = op.id AND state = ?4 AND state IN ('claimed', 'sending') AND token = ?3`

// Lapse ends a lease whose holder is gone, by the class that the operation was
// accepted under: idempotent and local are due again, queryable is asked about,
// opaque waits for a person. A local attempt that lapsed did nothing: its effect
// would have been the commit that ends it. The entry becomes a suspect; a lapse counts when it
// was one already. A question that lapses is due again. Events: LeaseOver,
// AskOver.
func (h Held) Lapse(tx *ledger.Tx) error {
	if h.State == Unknown {
		_, err := h.StillUnknown(tx, StillUnknown{Event: AskOver, At: tx.Now(), Evidence: lapsed("asked")})
		return err
	}
	n, err := tx.Exec(lapseSQL, tx.Now(), h.ID, h.Token, h.State)
	if err != nil {
		return fmt.Errorf("lapse entry: %w", err)
	}
	if n == 0 {
		return ErrStale
	}
	tx.For(point.Retry)
	if h.State == Sending {
		tx.Ended(h.ID) // it is, where its class is opaque
	}
	return Record(tx, h, lapsed(string(h.State)))
}

func lapsed(phase string) Evidence {
	return Evidence{Kind: Lapse, Phase: phase, Class: "lapsed", Code: "lease_over"}
}

// Held is the lease that a row shows, as its holder had it.
func (d Due) Held() Held {
	return Held{ID: d.ID, Token: d.Token, Attempt: d.Attempts, Round: d.Round, State: d.State}
}
