package audit_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/audit"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
	"github.com/outboxd/outboxd/projection"
)

// everyTable is a closed file with at least one row in each table of ours.
func everyTable(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.db")
	l, err := ledger.Open(context.Background(), path, ledger.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	s := story{t, l, tools(t)}
	s.tell()
	ledgertest.Session(t, l, "s", 2)
	for turn := int64(1); turn <= 2; turn++ { // one is set aside, the other one is written
		s.project(turn)
	}
	err = l.Write(context.Background(), func(tx *ledger.Tx) error {
		for _, stmt := range []string{
			`INSERT INTO outbox_review (operation_id, action, uid, reason, evidence, state_before, state_after, round, at)
				SELECT operation_id, 'discard', 7, 'r', '{"n":1}', 'dead', 'discarded', 1, 1700000000000 FROM outbox_entry WHERE state = 'discarded'`,
			`INSERT INTO outbox_tombstone VALUES ('acme', 'shop', 'lamp', 'gone', '019ae000-0000-7000-8000-00000000000a', zeroblob(32), 'delivered', 1700000000000)`,
			`INSERT INTO outbox_tool (tool_name, paused, pause_reason, paused_at, breaker_until) VALUES ('lamp', 1, 'by hand', 1700000000000, 1700000000000)`,
			`INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments, not_before, session_id, turn, traceparent)
				VALUES ('acme', 'shop', 'lamp', 'new', '{}', 1, 's', 1, 't')`,
			`INSERT INTO outbox_refused (tenant_id, subject_id, tool_name, idempotency_key, arguments, code, message, refused_at)
				VALUES ('acme', 'shop', 'lamp', 'bad', '{', 'INPUT_INVALID', 'm', 1700000000000)`,
			`INSERT INTO outbox_history (session, event, decision, source_turn, target_turn, current_turn, source_open, status_ref, tool_name, state, reason,
				result, content_sha256, fetched_from, fetched_by, note, at) SELECT session, 'fetch/' || id || '/2', 'fetched', 1, 2, 2, 0, status_ref, tool_name, state,
				reason, result, content_sha256, id, 7, 'n', at FROM outbox_history WHERE decision = 'quarantined'`,
		} {
			if _, err := tx.Exec(stmt); err != nil {
				return fmt.Errorf("%s: %w", stmt, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// project delivers an operation of the turn and projects its end.
func (s story) project(turn int64) {
	s.t.Helper()
	r := ledgertest.Request("lamp", fmt.Sprint("of turn ", turn))
	r.Session, r.Turn = "s", turn
	id := ledgertest.Accept(s.t, s.l, s.reg, r).ID
	s.deliver(s.claim(id, true, false), entry.Fresh)
	q, err := projection.NewEnqueuer()
	if err != nil {
		s.t.Fatal(err)
	}
	ledgertest.Write(s.t, s.l, func(tx *ledger.Tx) error {
		if _, err := q.Ended(tx, []int64{id}); err != nil {
			return err
		}
		var f int64
		if err := tx.One(`SELECT max(id) FROM outbox_operation`).Scan(&f); err != nil {
			return err
		}
		ops, err := intake.Load(tx, []int64{f})
		if err != nil {
			return err
		}
		op := ops[f]
		out := projection.Project(tx, handler.Call{StatusRef: op.StatusRef, Tool: op.Scope.Tool, Tenant: op.Scope.Tenant,
			Subject: op.Scope.Subject, Key: op.Scope.Key, Arguments: op.Arguments})
		if out.Observed != handler.Succeeded {
			return fmt.Errorf("projected: %s %s", out.Code, out.Excerpt)
		}
		return nil
	})
}

// tampered are the tables beside those whose rows a digest binds (tamper_test.go).
var tampered = []string{"outbox_entry", "outbox_attempt", "outbox_review", "outbox_tool", "outbox_meta", "outbox_tombstone",
	"outbox_session", "outbox_turn", "outbox_history", "outbox_intake", "outbox_refused"}

// forgeries are values that somebody could put there, beside the general ones.
var forgeries = map[string][]string{
	"state": {`'pending'`, `'delivered'`, `'dead'`}, "decision": {`'quarantined'`, `'written'`}, "ended": {`'over'`}, "kind": {`'rumour'`},
	"action": {`'allow'`}, "state_before": {`'done'`}, "state_after": {`'done'`}, "paused": {`1 - paused`},
	"status_ref": {`'019ae000-0000-7000-8000-0000000000ff'`}, "reason": {`NULL`, `''`},
}

// general is tried on every column: another number, none, another text.
var general = []string{`%[1]s + 1`, `%[1]s + 1000000`, `9007199254740993`, `-1`, `NULL`, `zeroblob(length(%[1]s))`, `%[1]s || 'x'`, `x'ff'`}

// TestEveryColumnOfTheStateIsComparedOrListed forges each column of each table: audit
// finds one forgery at least, or the table of the documentation says why it cannot.
func TestEveryColumnOfTheStateIsComparedOrListed(t *testing.T) {
	master := everyTable(t)
	if report := run(t, master); !report.Clean() {
		t.Fatalf("the file is not clean: %+v", report.Findings)
	}
	doc, err := os.ReadFile("../docs/tampering.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tampered {
		for _, column := range names(t, master, table) {
			t.Run(table+"."+column, func(t *testing.T) {
				listed := strings.Contains(string(doc), "| `"+table+"."+column+"` |")
				if found := forged(t, master, table, column); found == listed {
					t.Errorf("found by audit: %t, listed as what audit cannot find: %t", found, listed)
				}
			})
		}
	}
}

// forged reports whether audit finds, or opening the file refuses, a forgery that
// keeps the column's type.
func forged(t *testing.T, master, table, column string) bool {
	t.Helper()
	for _, value := range append(forgeries[column], general...) {
		if strings.Contains(value, "%") {
			value = fmt.Sprintf(value, column)
		}
		path := copied(t, master)
		if !forge(t, path, fmt.Sprintf(`UPDATE %s SET %s = %s`, table, column, value)) {
			continue
		}
		l, err := ledger.Open(context.Background(), path, ledger.Options{ReadOnly: true})
		if err != nil {
			return true // the daemon does not even open it
		}
		report, err := audit.Run(context.Background(), l)
		_ = l.Close()
		if err != nil || !report.Clean() {
			return true
		}
	}
	return false
}

// forge runs one statement; false: SQLite itself does not take such a value there.
func forge(t *testing.T, path, stmt string) bool {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, pragma := range []string{`PRAGMA ignore_check_constraints = ON`, `PRAGMA foreign_keys = OFF`} {
		if _, err := db.Exec(pragma); err != nil {
			t.Fatal(err)
		}
	}
	_, err = db.Exec(stmt)
	return err == nil
}

func names(t *testing.T, path, table string) (list []string) {
	t.Helper()
	l, err := ledger.Open(context.Background(), path, ledger.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return columns(t, l, table)
}
