package entry

import (
	"fmt"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

const nearerSQL = `UPDATE outbox_entry SET due_at = MAX(IIF(token IS NULL, ?2, ?3), COALESCE(far.not_before, 0))
	FROM (SELECT e.operation_id AS id, op.not_before FROM outbox_entry AS e
		JOIN outbox_operation AS op ON op.id = e.operation_id
		WHERE e.tool_name = ?1 AND e.due_at > MIN(?2, ?3) AND e.due_at > COALESCE(op.not_before, 0)
		AND CASE WHEN e.token IS NULL THEN e.due_at > ?2 AND e.state IN ('pending', 'unknown')
			ELSE e.due_at > ?3 AND e.owner <> ?4 END
		LIMIT ?5) AS far
	WHERE operation_id = far.id`

// Nearer corrects due times after the wall clock was set back: up to n entries
// of a tool that would wait beyond wait are due then, but not before the caller's
// not_before, and leases of other processes that would last beyond lease end
// then. It returns how many there were; fewer than n are all.
func Nearer(tx *ledger.Tx, tool string, wait, lease time.Time, n int) (int, error) {
	moved, err := tx.Exec(nearerSQL, tool, wait, lease, tx.Epoch(), n)
	if err != nil {
		return 0, fmt.Errorf("bring entries nearer: %w", err)
	}
	return int(moved), nil
}
