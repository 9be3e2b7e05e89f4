package audit

import (
	"fmt"

	"github.com/outboxd/outboxd/ledger"
)

// InstantInvalid says that a row is of a moment outside of the years 1970 to 9999.
const InstantInvalid = "INSTANT_INVALID"

// lastInstant is the end of the year 9999, Unix milliseconds.
const lastInstant = 253402300799999

// instantsSQL counts the rows of each table that are of no moment.
const instantsSQL = `SELECT * FROM (
	SELECT 'outbox_operation' AS name, count(*) AS n FROM outbox_operation WHERE accepted_at NOT BETWEEN 0 AND ?1
	UNION ALL SELECT 'outbox_entry', count(*) FROM outbox_entry WHERE COALESCE(due_at, 0) NOT BETWEEN 0 AND ?1
		OR COALESCE(last_sent_at, 0) NOT BETWEEN 0 AND ?1 OR COALESCE(over_at, 0) NOT BETWEEN 0 AND ?1
		OR COALESCE(unproven_since, 0) NOT BETWEEN 0 AND ?1 OR round_at NOT BETWEEN 0 AND ?1
		OR changed_at NOT BETWEEN 0 AND ?1 OR round_excused NOT BETWEEN 0 AND ?1
	UNION ALL SELECT 'outbox_attempt', count(*) FROM outbox_attempt WHERE at NOT BETWEEN 0 AND ?1
	UNION ALL SELECT 'outbox_receipt', count(*) FROM outbox_receipt WHERE at NOT BETWEEN 0 AND ?1
	UNION ALL SELECT 'outbox_review', count(*) FROM outbox_review WHERE at NOT BETWEEN 0 AND ?1
	UNION ALL SELECT 'outbox_tool', count(*) FROM outbox_tool WHERE COALESCE(paused_at, 0) NOT BETWEEN 0 AND ?1
		OR COALESCE(breaker_until, 0) NOT BETWEEN 0 AND ?1 OR excused_ms NOT BETWEEN 0 AND ?1
	UNION ALL SELECT 'outbox_meta', count(*) FROM outbox_meta WHERE COALESCE(restored_at, 0) NOT BETWEEN 0 AND ?1
	UNION ALL SELECT 'outbox_tombstone', count(*) FROM outbox_tombstone WHERE purged_at NOT BETWEEN 0 AND ?1
	UNION ALL SELECT 'outbox_session', count(*) FROM outbox_session WHERE opened_at NOT BETWEEN 0 AND ?1
	UNION ALL SELECT 'outbox_turn', count(*) FROM outbox_turn WHERE opened_at NOT BETWEEN 0 AND ?1
		OR COALESCE(closed_at, 0) NOT BETWEEN 0 AND ?1
	UNION ALL SELECT 'outbox_history', count(*) FROM outbox_history WHERE at NOT BETWEEN 0 AND ?1
	UNION ALL SELECT 'outbox_refused', count(*) FROM outbox_refused WHERE refused_at NOT BETWEEN 0 AND ?1
	) WHERE n > 0`

func (a *auditor) instants() error {
	err := a.q.Each(func(r *ledger.Row) error {
		var table string
		var n int64
		if err := r.Scan(&table, &n); err != nil {
			return err
		}
		a.report.find(InstantInvalid, "", fmt.Sprintf("%d rows of %s are of no moment that can be", n, table))
		return nil
	}, instantsSQL, lastInstant)
	if err != nil {
		return fmt.Errorf("check instants: %w", err)
	}
	return nil
}
