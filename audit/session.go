package audit

import (
	"fmt"

	"github.com/outboxd/outboxd/ledger"
)

// HistoryInvalid says that a result stands where it could not have been put.
const HistoryInvalid = "HISTORY_INVALID"

// decisionsSQL decides each result again: it was written if and only if the turn that
// asked was open between the rows that its turn notes. A turn that is open is the
// session's current one, and no turn is missing.
const decisionsSQL = `SELECT h.status_ref, 'row ' || h.id || ' of the history was ' || h.decision || ' against the turns of its session'
	FROM outbox_history AS h LEFT JOIN outbox_turn AS t ON t.session = h.session AND t.turn = h.source_turn
	WHERE h.decision <> 'fetched' AND (t.turn IS NULL OR (h.decision = 'written') <> (h.id > t.first_row AND (t.last_row IS NULL OR h.id <= t.last_row)))
	UNION ALL SELECT '', 'turn ' || t.turn || ' of session ' || s.id || ' is open, and turn ' || s.turn || ' is the current one'
	FROM outbox_turn AS t JOIN outbox_session AS s ON s.id = t.session WHERE t.closed_at IS NULL AND t.turn <> s.turn
	UNION ALL SELECT '', 'session ' || s.id || ' does not have the turns that it counts'
	FROM outbox_session AS s WHERE s.turn <> (SELECT count(*) FROM outbox_turn AS t WHERE t.session = s.id AND t.turn <= s.turn)
	UNION ALL SELECT h.status_ref, 'row ' || h.id || ' of the history was fetched from what was not set aside'
	FROM outbox_history AS h LEFT JOIN outbox_history AS q ON q.id = h.fetched_from AND q.session = h.session AND q.decision = 'quarantined'
	WHERE h.decision = 'fetched' AND (q.id IS NULL OR q.result IS NOT h.result OR q.content_sha256 <> h.content_sha256)
	UNION ALL SELECT h.status_ref, 'row ' || h.id || ' of the history is of an event that is not its own' FROM outbox_history AS h
	WHERE CASE h.decision WHEN 'fetched' THEN h.event <> 'fetch/' || h.fetched_from || '/' || h.target_turn
		ELSE substr(h.event, 1, 37) <> h.status_ref || '/' END`

func (a *auditor) decisions() error {
	err := a.q.Each(func(r *ledger.Row) error {
		var ref, what string
		if err := r.Scan(&ref, &what); err != nil {
			return err
		}
		a.report.find(HistoryInvalid, ref, what)
		return nil
	}, decisionsSQL)
	if err != nil {
		return fmt.Errorf("check sessions: %w", err)
	}
	return nil
}
