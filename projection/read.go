package projection

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

func find(q ledger.Querier, tenant, subject, name string) (s Session, err error) {
	s.Tenant, s.Subject, s.Name = tenant, subject, name
	err = q.One(`SELECT s.id, s.turn, s.opened_at, t.closed_at IS NULL FROM outbox_session AS s
		JOIN outbox_turn AS t ON t.session = s.id AND t.turn = s.turn
		WHERE s.tenant_id = ? AND s.subject_id = ? AND s.session_id = ?`, tenant, subject, name).
		Scan(&s.ID, &s.Turn, &s.OpenedAt, &s.Open)
	if errors.Is(err, sql.ErrNoRows) {
		return s, ErrNotFound
	}
	if err != nil {
		return s, fmt.Errorf("read session: %w", err)
	}
	return s, nil
}

// Row is one decision with what it is about.
type Row struct {
	ID          int64
	Event       string
	Decision    string
	SourceTurn  int64
	TargetTurn  int64 // 0: none, it is set aside
	CurrentTurn int64 // as it was observed
	SourceOpen  bool  // as it was observed
	StatusRef   string
	Tool        string
	State       string
	Reason      string
	Result      []byte // canonical JSON; nil: none
	FetchedFrom int64  // the row that is set aside
	FetchedBy   int64  // uid
	Note        string
	At          time.Time
}

const rowsSQL = `SELECT id, event, decision, source_turn, COALESCE(target_turn, 0), current_turn, source_open, status_ref,
	tool_name, state, reason, result, COALESCE(fetched_from, 0), COALESCE(fetched_by, 0), note, at
	FROM outbox_history WHERE session = ?1 AND id > ?2 AND (target_turn IS NULL) = ?3 AND (?4 = 0 OR target_turn = ?4)
	ORDER BY id LIMIT ?5`

// History lists what was written to a session's turns behind the row after, the
// oldest first: all of them, or those of one turn.
func History(q ledger.Querier, s Session, turn, after int64, limit int) ([]Row, error) {
	return rows(q, s.ID, after, false, turn, limit)
}

// SetAside lists what was set aside behind the row after, the oldest first.
func SetAside(q ledger.Querier, s Session, after int64, limit int) ([]Row, error) {
	return rows(q, s.ID, after, true, 0, limit)
}

func rows(q ledger.Querier, session, after int64, aside bool, turn int64, limit int) (list []Row, err error) {
	err = q.Each(func(r *ledger.Row) error {
		var w Row
		err := r.Scan(&w.ID, &w.Event, &w.Decision, &w.SourceTurn, &w.TargetTurn, &w.CurrentTurn, &w.SourceOpen, &w.StatusRef,
			&w.Tool, &w.State, &w.Reason, &w.Result, &w.FetchedFrom, &w.FetchedBy, &w.Note, &w.At)
		list = append(list, w)
		return err
	}, rowsSQL, session, after, aside, turn, limit)
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	return list, nil
}

// Fetch puts what is set aside into the current turn, whose number must be named: a
// recorded act of somebody who knows that it is an earlier task's result. Done twice
// it is done once.
func Fetch(tx *ledger.Tx, s Session, row, turn, uid int64, note string) (Row, error) {
	if turn != s.Turn || !s.Open {
		return Row{}, &MovedError{s.Turn, s.Open}
	}
	event := fmt.Sprintf("fetch/%d/%d", row, turn)
	n, err := tx.Exec(`INSERT INTO outbox_history (session, event, decision, source_turn, target_turn, current_turn, source_open,
		status_ref, tool_name, state, reason, result, content_sha256, fetched_from, fetched_by, note, at)
		SELECT session, ?3, 'fetched', source_turn, ?4, ?4, 0, status_ref, tool_name, state, reason, result, content_sha256,
			id, ?5, ?6, ?7
		FROM outbox_history WHERE session = ?1 AND id = ?2 AND decision = 'quarantined' ON CONFLICT (session, event) DO NOTHING`,
		s.ID, row, event, turn, uid, note, tx.Now())
	if err != nil {
		return Row{}, fmt.Errorf("fetch what is set aside: %w", err)
	}
	var id int64
	err = tx.One(`SELECT id FROM outbox_history WHERE session = ? AND event = ?`, s.ID, event).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		if n != 0 {
			return Row{}, ledger.ErrIgnored
		}
		return Row{}, ErrNotFound
	}
	if err != nil {
		return Row{}, fmt.Errorf("read what was fetched: %w", err)
	}
	list, err := rows(tx, s.ID, id-1, false, turn, 1)
	if err != nil || len(list) == 0 {
		return Row{}, err
	}
	return list[0], nil
}
