package audit

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/projection"
)

// toldSQL is each decision with the event that it was about, while the operation that
// carried the event is kept, and with the operation that the event tells of.
const toldSQL = `SELECT h.id, h.status_ref, h.state, COALESCE(h.reason, ''), h.source_turn, h.tool_name, h.result, h.content_sha256,
	f.arguments, COALESCE(o.tool_name, h.tool_name), COALESCE(o.turn, h.source_turn), s.session_id
	FROM outbox_history AS h JOIN outbox_session AS s ON s.id = h.session
	JOIN outbox_operation AS f ON f.tool_name = ? AND f.idempotency_key = h.event
		AND f.tenant_id = s.tenant_id AND f.subject_id = s.subject_id
	LEFT JOIN outbox_operation AS o ON o.status_ref = h.status_ref
	WHERE h.decision <> 'fetched'`

// strayedSQL is each decision whose session is of somebody else than its operation.
const strayedSQL = `SELECT h.status_ref, h.id FROM outbox_history AS h JOIN outbox_session AS s ON s.id = h.session
	JOIN outbox_operation AS o ON o.status_ref = h.status_ref
	WHERE o.tenant_id <> s.tenant_id OR o.subject_id <> s.subject_id OR o.session_id IS NOT s.session_id`

// told compares what the history says with the event that it was told.
func (a *auditor) told() error {
	err := a.q.Each(func(r *ledger.Row) error {
		var h toldRow
		if err := r.Scan(&h.id, &h.ref, &h.state, &h.reason, &h.turn, &h.tool, &h.result, &h.sum,
			&h.arguments, &h.asked, &h.askedTurn, &h.session); err != nil {
			return err
		}
		if what := h.wrong(); what != "" {
			a.report.find(HistoryInvalid, h.ref, fmt.Sprintf("row %d of the history has another %s than its event", h.id, what))
		}
		return nil
	}, toldSQL, projection.ToolName)
	if err != nil {
		return fmt.Errorf("check history: %w", err)
	}
	err = a.q.Each(func(r *ledger.Row) error {
		var ref string
		var id int64
		if err := r.Scan(&ref, &id); err != nil {
			return err
		}
		a.report.find(HistoryInvalid, ref, fmt.Sprintf("row %d of the history is in the session of somebody else", id))
		return nil
	}, strayedSQL)
	if err != nil {
		return fmt.Errorf("check history: %w", err)
	}
	return nil
}

type toldRow struct {
	id, turn, askedTurn      int64
	ref, state, reason, tool string
	asked, session           string // tool of the operation; name of the session
	result, sum, arguments   []byte
}

// wrong names what does not fit the event.
func (h *toldRow) wrong() string {
	var e struct {
		Operation, Reason, Session, State string
		Result                            string `json:"result_sha256"`
		Turn                              int64
	}
	sum := projection.Content(h.arguments)
	if json.Unmarshal(h.arguments, &e) != nil || !bytes.Equal(h.sum, sum[:]) {
		return "content"
	}
	digest := contract.ResultDigest(h.result)
	result := hex.EncodeToString(digest[:])
	for _, c := range []struct {
		what string
		ok   bool
	}{
		{"status_ref", e.Operation == h.ref}, {"state", e.State == h.state}, {"reason", e.Reason == h.reason},
		{"turn", e.Turn == h.turn && h.askedTurn == h.turn}, {"session", e.Session == h.session},
		{"tool", h.asked == h.tool}, {"result", e.Result == "" && h.result == nil || e.Result == result},
	} {
		if !c.ok {
			return c.what
		}
	}
	return ""
}
