package audit_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxd/outboxd/audit"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// story brings operations into every state that entry can bring them to.
type story struct {
	t   *testing.T
	l   *ledger.Ledger
	reg *contract.Registry
}

func tools(t testing.TB) *contract.Registry {
	return ledgertest.Registry(t, ledgertest.Tool("lamp", entry.Idempotent), ledgertest.Tool("door", entry.Opaque),
		ledgertest.Tool("gate", entry.Queryable))
}

var evidence = entry.Evidence{Kind: entry.Outcome, Phase: "sending", Class: "try_again", Code: "http_503"}

// step runs fn on the entry as it stands, with a new token.
func (s story) step(id int64, fn func(*ledger.Tx, entry.Due, entry.Lease) error) {
	s.t.Helper()
	ledgertest.Write(s.t, s.l, func(tx *ledger.Tx) error {
		d, err := entry.Get(tx, id)
		if err != nil {
			return err
		}
		token, err := tx.Tokens(1)
		if err != nil {
			return err
		}
		return fn(tx, d, entry.Lease{Token: token, Until: tx.Now().Add(time.Hour), Over: tx.Now()})
	})
}

func (s story) accept(tool, key string) int64 {
	s.t.Helper()
	return ledgertest.Accept(s.t, s.l, s.reg, ledgertest.Request(tool, key)).ID
}

// claim takes an entry and, with mark, hands it over.
func (s story) claim(id int64, marked, mark bool) (held entry.Held) {
	s.t.Helper()
	s.step(id, func(tx *ledger.Tx, d entry.Due, lease entry.Lease) (err error) {
		if held, err = entry.Take(tx, d, lease, marked); err == nil && mark {
			held, err = entry.Hand(tx, held, lease.Over)
		}
		return err
	})
	return held
}

func (s story) ask(id int64) (held entry.Held) {
	s.t.Helper()
	s.step(id, func(tx *ledger.Tx, d entry.Due, lease entry.Lease) (err error) {
		held, err = entry.Question(tx, d, lease, true)
		return err
	})
	return held
}

func (s story) doubt(h entry.Held, at time.Time) {
	s.t.Helper()
	s.step(h.ID, func(tx *ledger.Tx, _ entry.Due, _ entry.Lease) error {
		_, err := h.Doubt(tx, entry.Doubt{Event: entry.Maybe, To: entry.Unknown, At: at, Reason: "timeout", Evidence: evidence})
		return err
	})
}

func (s story) deliver(h entry.Held, how entry.How) {
	s.t.Helper()
	result := []byte(`{"ok":true}`)
	ledgertest.Write(s.t, s.l, func(tx *ledger.Tx) error {
		ops, err := intake.Load(tx, []int64{h.ID})
		if err != nil {
			return err
		}
		sum := contract.ResultDigest(result)
		return entry.Deliver(tx, h, entry.Receipt{Result: result, ResultSum: sum,
			Binding: ops[h.ID].Bind(sum, "ref-1").Digest(), Reference: "ref-1", How: how})
	})
}

func (s story) again(h entry.Held, giveUp string) {
	s.t.Helper()
	event := entry.Again
	if giveUp != "" {
		event = entry.Reject
	}
	s.step(h.ID, func(tx *ledger.Tx, _ entry.Due, _ entry.Lease) error {
		_, err := h.Nothing(tx, entry.Nothing{Event: event, At: tx.Now(), Evidence: evidence, GiveUp: giveUp})
		return err
	})
}

// tell leaves one operation in each state, named by its key.
func (s story) tell() {
	s.t.Helper()
	s.accept("lamp", "pending")

	id := s.accept("lamp", "delivered")
	s.again(s.claim(id, true, false), "")
	s.deliver(s.claim(id, true, false), entry.Fresh)

	s.again(s.claim(s.accept("lamp", "dead"), true, false), "rejected")
	s.doubt(s.claim(s.accept("door", "held"), false, true), time.Time{})
	s.claim(s.accept("door", "sending"), false, true)
	s.claim(s.accept("door", "claimed"), false, false)

	id = s.accept("gate", "asked")
	s.doubt(s.claim(id, false, true), time.Now())
	s.ask(id)

	id = s.accept("gate", "reconciled")
	s.doubt(s.claim(id, false, true), time.Now())
	s.deliver(s.ask(id), entry.Reconciled)

	id = s.accept("lamp", "discarded")
	ledgertest.Write(s.t, s.l, func(tx *ledger.Tx) error {
		_, err := entry.Withdraw(tx, id)
		return err
	})
}

// file is a closed file with the whole story in it.
func file(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.db")
	l, err := ledger.Open(context.Background(), path, ledger.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	story{t, l, tools(t)}.tell()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// copied is a copy of a closed file, made by SQLite. It is in WAL mode, which
// VACUUM INTO does not keep.
func copied(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "outbox.db")
	edit(t, path, `VACUUM INTO '`+to+`'`)
	edit(t, to, `PRAGMA journal_mode = WAL`)
	return to
}

// edit changes a closed file as somebody with a database browser could.
func edit(t *testing.T, path string, stmts ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, stmt := range append([]string{`PRAGMA ignore_check_constraints = ON`, `PRAGMA foreign_keys = OFF`}, stmts...) {
		if _, err := db.Exec(stmt); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
}

func run(t *testing.T, path string) *audit.Report {
	t.Helper()
	l, err := ledger.Open(context.Background(), path, ledger.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	report, err := audit.Run(context.Background(), l)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestEveryLegalStateIsClean(t *testing.T) {
	report := run(t, file(t))
	if !report.Clean() || len(report.Findings) != 0 {
		t.Errorf("got findings %+v, want none", report.Findings)
	}
	want := audit.Checked{Operations: 9, Entries: 9, Receipts: 2, Attempts: 5}
	want.Attempts = report.Checked.Attempts
	if report.Checked != want || report.Checked.Attempts == 0 {
		t.Errorf("checked %+v, want %+v", report.Checked, want)
	}
}

const (
	operation = ` WHERE idempotency_key = `
	of        = ` WHERE operation_id = (SELECT id FROM outbox_operation WHERE idempotency_key = `
)

func TestFinds(t *testing.T) {
	master := file(t)
	for _, c := range []struct {
		name, edit string
		code       string
		what       string // part of it
	}{
		{"entry deleted", `DELETE FROM outbox_entry` + of + `'pending')`, audit.EntryMissing, "no entry"},
		{"operation deleted", `DELETE FROM outbox_operation` + operation + `'pending'`, audit.OperationMissing, "of outbox_entry refers to no row of outbox_operation"},
		{"receipt deleted", `DELETE FROM outbox_receipt` + of + `'delivered')`, audit.ReceiptMissing, "without a receipt"},
		{"receipt without delivery", `UPDATE outbox_receipt SET operation_id = (SELECT id FROM outbox_operation WHERE idempotency_key = 'dead')` + of + `'delivered')`, audit.ReceiptInvalid, "not delivered"},
		{"receipt of nothing", `UPDATE outbox_receipt SET operation_id = 4711` + of + `'delivered')`, audit.OperationMissing, "of outbox_receipt"},
		{"tombstone beside its operation", `INSERT INTO outbox_tombstone SELECT tenant_id, subject_id, tool_name, idempotency_key, 'x', request_sha256, 'delivered', 1 FROM outbox_operation` + operation + `'delivered'`, audit.TombstoneInvalid, "has an operation"},
		{"tombstone of a living reference", `INSERT INTO outbox_tombstone SELECT tenant_id, subject_id, tool_name, 'other', status_ref, request_sha256, 'delivered', 1 FROM outbox_operation` + operation + `'delivered'`, audit.TombstoneInvalid, "has an operation"},
		{"review of nothing", `INSERT INTO outbox_review (operation_id, action, uid, reason, state_before, state_after, round, at) VALUES (4711, 'discard', 0, 'r', 'dead', 'discarded', 1, 1)`, audit.OperationMissing, "of outbox_review"},
		{"evidence of nothing", `UPDATE outbox_attempt SET operation_id = 4711` + of + `'delivered')`, audit.OperationMissing, "of outbox_attempt"},

		{"result changed", `UPDATE outbox_receipt SET result = '{"ok":false}'` + of + `'delivered')`, audit.DigestMismatch, "result_sha256"},
		{"result removed", `UPDATE outbox_receipt SET result = NULL` + of + `'delivered')`, audit.DigestMismatch, "result_sha256"},
		{"result spaced", `UPDATE outbox_receipt SET result = '{"ok": true}'` + of + `'delivered')`, audit.ReceiptInvalid, "canonical"},
		{"result too long", `UPDATE outbox_receipt SET result = '"' || printf('%.*c', 70000, 'x') || '"'` + of + `'delivered')`, audit.ReceiptInvalid, "canonical"},
		{"result digest", `UPDATE outbox_receipt SET result_sha256 = x'00'` + of + `'delivered')`, audit.DigestMismatch, "result_sha256"},
		{"reference", `UPDATE outbox_receipt SET reference = 'ref-2'` + of + `'delivered')`, audit.DigestMismatch, "call_binding_sha256"},
		{"call id", `UPDATE outbox_operation SET call_id = 'c'` + operation + `'delivered'`, audit.DigestMismatch, "call_binding_sha256"},
		{"handler revision", `UPDATE outbox_operation SET handler_revision = 'h2'` + operation + `'delivered'`, audit.DigestMismatch, "call_binding_sha256"},
		{"receipt of attempt 9", `UPDATE outbox_receipt SET attempt = 9` + of + `'delivered')`, audit.ReceiptInvalid, "never made"},
		{"receipt of attempt 0", `UPDATE outbox_receipt SET attempt = 0` + of + `'delivered')`, audit.ReceiptInvalid, "never made"},
		{"receipt by guess", `UPDATE outbox_receipt SET how = 'guess'` + of + `'delivered')`, audit.ReceiptInvalid, "came about"},
		{"receipt of an earlier claim", `UPDATE outbox_receipt SET token = token - 1` + of + `'delivered')`, audit.TokenInvalid, "another token than the last claim"},
		{"receipt of an old question", `UPDATE outbox_receipt SET token = 1` + of + `'reconciled')`, audit.TokenInvalid, "question"},
		{"receipt from the future", `UPDATE outbox_receipt SET token = 9007199254740991` + of + `'reconciled')`, audit.TokenInvalid, "never given out"},

		{"arguments changed", `UPDATE outbox_operation SET arguments = '{"order":18}'` + operation + `'pending'`, audit.DigestMismatch, "request_sha256"},
		{"arguments spaced", `UPDATE outbox_operation SET arguments = '{"order": 17}'` + operation + `'pending'`, audit.OperationInvalid, "canonical"},
		{"arguments too long", `UPDATE outbox_operation SET arguments = '"' || printf('%.*c', 70000, 'x') || '"'` + operation + `'pending'`, audit.OperationInvalid, "canonical"},
		{"request digest", `UPDATE outbox_operation SET request_sha256 = zeroblob(32)` + operation + `'pending'`, audit.DigestMismatch, "request_sha256"},
		{"request digest cut", `UPDATE outbox_operation SET request_sha256 = zeroblob(31)` + operation + `'pending'`, audit.DigestMismatch, "request_sha256"},
		{"output revision", `UPDATE outbox_operation SET output_revision = 'o2'` + operation + `'pending'`, audit.DigestMismatch, "request_sha256"},
		{"wire key", `UPDATE outbox_operation SET wire_key = substr(wire_key, 2)` + operation + `'pending'`, audit.DigestMismatch, "wire_key"},
		{"key", `UPDATE outbox_operation SET idempotency_key = 'other'` + operation + `'pending'`, audit.DigestMismatch, "wire_key"},
		{"blank key", `UPDATE outbox_operation SET idempotency_key = ' '` + operation + `'pending'`, audit.OperationInvalid, "idempotency_key"},
		{"tenant", `UPDATE outbox_operation SET tenant_id = 'a' || char(10)` + operation + `'pending'`, audit.OperationInvalid, "tenant_id"},
		{"subject", `UPDATE outbox_operation SET subject_id = CAST(x'ff' AS TEXT)` + operation + `'pending'`, audit.OperationInvalid, "subject_id"},
		{"tool", `UPDATE outbox_operation SET tool_name = ''` + operation + `'pending'`, audit.OperationInvalid, "tool_name"},
		{"revision", `UPDATE outbox_operation SET policy_revision = ''` + operation + `'pending'`, audit.OperationInvalid, "policy_revision"},
		{"session", `UPDATE outbox_operation SET session_id = ' '` + operation + `'pending'`, audit.OperationInvalid, "session"},
		{"turn", `UPDATE outbox_operation SET turn = 3` + operation + `'pending'`, audit.OperationInvalid, "turn"},
		{"not before", `UPDATE outbox_operation SET not_before = -5` + operation + `'pending'`, audit.OperationInvalid, "not_before"},
		{"status_ref", `UPDATE outbox_operation SET status_ref = '6f0a1f6e-3a1c-4a7d-9d1c-0f3f1a2b3c4d'` + operation + `'pending'`, audit.OperationInvalid, "UUIDv7"},
		{"effect class", `UPDATE outbox_operation SET effect = 'harmless'` + operation + `'pending'`, audit.OperationInvalid, "effect class"},

		{"entry of another tool", `UPDATE outbox_entry SET tool_name = 'door'` + of + `'pending')`, audit.StateInvalid, "another tool"},
		{"no such state", `UPDATE outbox_entry SET state = 'done'` + of + `'pending')`, audit.StateInvalid, "no such state"},
		{"owner without token", `UPDATE outbox_entry SET owner = 1` + of + `'pending')`, audit.StateInvalid, "owner without token"},
		{"unproven by nobody", `UPDATE outbox_entry SET unproven_by = NULL` + of + `'sending')`, audit.StateInvalid, "unproven send"},
		{"negative attempts", `UPDATE outbox_entry SET attempts = -1` + of + `'pending')`, audit.StateInvalid, "counter"},
		{"negative failures", `UPDATE outbox_entry SET failures = -1` + of + `'pending')`, audit.StateInvalid, "counter"},
		{"negative lapses", `UPDATE outbox_entry SET lapses = -1` + of + `'pending')`, audit.StateInvalid, "counter"},
		{"negative queries", `UPDATE outbox_entry SET queries = -1` + of + `'pending')`, audit.StateInvalid, "counter"},
		{"round 0", `UPDATE outbox_entry SET round = 0` + of + `'pending')`, audit.StateInvalid, "counter"},
		{"pending, never due", `UPDATE outbox_entry SET due_at = NULL` + of + `'pending')`, audit.StateInvalid, `"pending"`},
		{"claimed without a claim", `UPDATE outbox_entry SET attempts = 0` + of + `'claimed')`, audit.StateInvalid, `"claimed"`},
		{"claimed under an old token", `UPDATE outbox_entry SET token = token - 1` + of + `'claimed')`, audit.StateInvalid, `"claimed"`},
		{"sending, never sent", `UPDATE outbox_entry SET last_sent_at = NULL` + of + `'sending')`, audit.StateInvalid, `"sending"`},
		{"waiting with a holder", `UPDATE outbox_entry SET state = 'waiting'` + of + `'claimed')`, audit.StateInvalid, `"waiting"`},
		{"unknown, nothing sent", `UPDATE outbox_entry SET unproven_since = NULL, unproven_by = NULL` + of + `'held')`, audit.StateInvalid, `"unknown"`},
		{"dead with an unproven send", `UPDATE outbox_entry SET unproven_since = 1, unproven_by = claim_token` + of + `'dead')`, audit.StateInvalid, `"dead"`},
		{"delivered and due", `UPDATE outbox_entry SET due_at = 1` + of + `'delivered')`, audit.StateInvalid, `"delivered"`},
		{"discarded and due", `UPDATE outbox_entry SET due_at = 1` + of + `'discarded')`, audit.StateInvalid, `"discarded"`},
		{"sent without an attempt", `UPDATE outbox_entry SET attempts = 0` + of + `'held')`, audit.StateInvalid, "without an attempt"},
		{"dead without a reason", `UPDATE outbox_entry SET reason = NULL` + of + `'dead')`, audit.ReasonMissing, "without a reason"},
		{"held without a reason", `UPDATE outbox_entry SET reason = NULL` + of + `'held')`, audit.ReasonMissing, "without a reason"},
		{"opaque pending again", `UPDATE outbox_entry SET state = 'pending', due_at = 1` + of + `'held')`, audit.SentTwice, "opaque"},
		{"opaque claimed again", `UPDATE outbox_entry SET unproven_since = 1, unproven_by = claim_token - 1` + of + `'claimed')`, audit.SentTwice, "opaque"},
		{"queryable sent again", `UPDATE outbox_entry SET unproven_by = claim_token - 1` + of + `'asked')`, audit.SentTwice, "queryable"},

		{"claim from the future", `UPDATE outbox_entry SET claim_token = 9007199254740991` + of + `'pending')`, audit.TokenInvalid, "claim_token 9007199254740991 was never given out"},
		{"token from the future", `UPDATE outbox_entry SET token = 9007199254740991` + of + `'asked')`, audit.TokenInvalid, "token 9007199254740991 was never given out"},
		{"send from the future", `UPDATE outbox_entry SET unproven_by = 9007199254740991` + of + `'held')`, audit.TokenInvalid, "unproven_by"},
		{"owner from the future", `UPDATE outbox_entry SET owner = 4711` + of + `'claimed')`, audit.TokenInvalid, "owner 4711 never started"},
		{"old question", `UPDATE outbox_entry SET token = claim_token` + of + `'asked')`, audit.TokenInvalid, "question"},
		{"last token lost", `UPDATE outbox_meta SET last_token = 0`, audit.TokenInvalid, "never given out"},
		{"last token out of range", `UPDATE outbox_meta SET last_token = 9007199254740992`, audit.TokenInvalid, "out of range"},

		{"evidence from the future", `UPDATE outbox_attempt SET token = 9007199254740991` + of + `'dead')`, audit.TokenInvalid, "evidence was never given out"},
		{"evidence of no kind", `UPDATE outbox_attempt SET kind = 'rumour'` + of + `'dead')`, audit.EvidenceInvalid, "kind"},
		{"evidence of attempt 0", `UPDATE outbox_attempt SET attempt = 0` + of + `'dead')`, audit.EvidenceInvalid, "never made"},
		{"evidence of round 9", `UPDATE outbox_attempt SET round = 9` + of + `'dead')`, audit.EvidenceInvalid, "never made"},
		{"falling tokens", `INSERT INTO outbox_attempt (operation_id, attempt, round, kind, token, phase, class, code, at)
			SELECT operation_id, attempt, round, kind, token - 1, phase, class, code, at FROM outbox_attempt` + of + `'dead')`, audit.TokenInvalid, "tokens of the evidence fall"},

		{"a constraint of a table without checks of ours", `INSERT INTO outbox_tool (tool_name, paused) VALUES ('lamp', 1)`, audit.StoreContract, "CHECK constraint failed in outbox_tool"},
		{"a constraint of the intake", `INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments, parked) VALUES ('', '', '', '', '', 7)`, audit.StoreContract, "CHECK constraint failed in outbox_intake"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := copied(t, master)
			edit(t, path, c.edit)
			finds(t, run(t, path), c.code, c.what)
		})
	}
}

func finds(t *testing.T, report *audit.Report, code, what string) {
	t.Helper()
	for _, f := range report.Findings {
		if f.Code == code && strings.Contains(f.What, what) {
			return
		}
	}
	t.Errorf("got findings %+v, want %s with %q", report.Findings, code, what)
}

func TestFindsARowThatIsMissingInAnIndex(t *testing.T) {
	path := file(t)
	edit(t, path, `PRAGMA writable_schema = ON`,
		`UPDATE sqlite_schema SET sql = replace(sql, 'due_at IS NOT NULL', 'due_at IS NULL') WHERE name = 'outbox_entry_due'`)
	finds(t, run(t, path), audit.StoreContract, "missing from index outbox_entry_due")
}

// Late evidence is kept after newer evidence; that is no fault.
func TestLateEvidenceIsClean(t *testing.T) {
	path := file(t)
	edit(t, path, `INSERT INTO outbox_attempt (operation_id, attempt, round, kind, token, phase, class, code, at)
		SELECT operation_id, attempt, round, 'late', token - 1, phase, class, code, at FROM outbox_attempt`)
	if report := run(t, path); !report.Clean() {
		t.Errorf("got findings %+v, want none", report.Findings)
	}
}

// A table of the application may need what this program does not have.
func TestForeignTablesAreLeftAlone(t *testing.T) {
	path := file(t)
	edit(t, path, `CREATE TABLE app (name TEXT CHECK (length(name) > 3))`, `CREATE INDEX app_name ON app (name)`, `INSERT INTO app VALUES ('x')`,
		`PRAGMA writable_schema = ON`,
		`UPDATE sqlite_schema SET sql = 'CREATE TABLE app (name TEXT COLLATE klingon CHECK (length(name) > 3))' WHERE name = 'app'`)
	if report := run(t, path); !report.Clean() {
		t.Errorf("got findings %+v, want none", report.Findings)
	}
}

func TestFindsOnEveryPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	l, err := ledger.Open(context.Background(), path, ledger.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 450)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if report := run(t, path); !report.Clean() || report.Checked.Operations != 450 || report.Checked.Entries != 450 {
		t.Fatalf("got %+v, want 450 clean operations", report)
	}
	edit(t, path, `DELETE FROM outbox_entry WHERE operation_id IN (1, 200, 201, 400, 401, 450)`)
	if report := run(t, path); report.Total != 6 {
		t.Errorf("got %d findings %+v, want 6", report.Total, report.Findings)
	}
	edit(t, path, `UPDATE outbox_operation SET arguments = '[]', wire_key = 'x', effect = 'x'`)
	report := run(t, path)
	if report.Total < 3*450 || len(report.Findings) != audit.MaxFindings {
		t.Errorf("got %d findings, %d listed, want all counted and %d listed", report.Total, len(report.Findings), audit.MaxFindings)
	}
}

func fill(t testing.TB, l *ledger.Ledger, n int) {
	t.Helper()
	reg := tools(t)
	for from := 0; from < n; from += 500 {
		ledgertest.Write(t, l, func(tx *ledger.Tx) error {
			for i := from; i < min(from+500, n); i++ {
				p, err := intake.Prepare(reg, ledgertest.Request("lamp", fmt.Sprintf("order-%d", i)))
				if err != nil {
					return err
				}
				if _, err := p.Accept(tx); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// One snapshot: what is being written does not look like a fault.
func TestCleanWhileOthersWrite(t *testing.T) {
	l := ledgertest.Open(t)
	s := story{t, l, tools(t)}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for i := range 100 {
			id := s.accept("lamp", fmt.Sprint(i))
			s.deliver(s.claim(id, true, false), entry.Fresh)
		}
	})
	for audits := 0; ; audits++ {
		select {
		case <-done:
			wg.Wait()
			return
		default:
			ledgertest.Audit(t, l)
		}
	}
}

func TestEndsWithItsContext(t *testing.T) {
	l := ledgertest.Open(t)
	fill(t, l, 10)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if report, err := audit.Run(ctx, l); err == nil {
		t.Errorf("got %+v under a context that has ended, want an error", report)
	}
}

// BenchmarkAudit is given per operation.
func BenchmarkAudit(b *testing.B) {
	const operations = 20_000
	l := ledgertest.Open(b)
	fill(b, l, operations)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := audit.Run(context.Background(), l); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/operations, "ns/operation")
}
