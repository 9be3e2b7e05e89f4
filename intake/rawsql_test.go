package intake_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// The contract of outbox_intake is plain SQL from any language: these tests
// write through another build of SQLite, from another process, while the ledger
// is open.

const pythonRows = `
import sqlite3, sys
if sqlite3.sqlite_version_info < (3, 37):
    print("skip: Python has SQLite", sqlite3.sqlite_version); sys.exit()
db = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
row = "INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments) VALUES (?, ?, ?, ?, ?)"
refused = 0
for key in ("007", "7", "1e3", "1000", "0x10", "caf\u00e9-3", "cafe\u0301-3", "", " "):
    db.execute(row, ("acme", "shop", "lamp", key, '{"a":1}'))
for bad in (None, b"007", 7, 7.0):
    try:
        db.execute(row, ("acme", "shop", "lamp", bad, '{"a":1}'))
    except sqlite3.IntegrityError as e:
        refused += "idempotency_key" in str(e)
db.execute("INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments) "
           "VALUES ('acme', 'shop', 'lamp', CAST(x'6bff' AS TEXT), CAST(zeroblob(5000000) AS TEXT))")
# In the application's own transaction: both or neither.
db.execute("CREATE TABLE refunds (id INTEGER PRIMARY KEY) STRICT")
for end in ("ROLLBACK", "COMMIT"):
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO refunds DEFAULT VALUES")
    db.execute(row, ("acme", "shop", "lamp", "own-" + end, '{"a":1}'))
    db.execute(end)
print("refused", refused)
`

func TestRowsFromPython(t *testing.T) {
	python := program(t, "python3")
	l, reg := ledgertest.Open(t), registry(t)
	out := run(t, exec.Command(python, "-c", pythonRows, l.Path()))
	if out != "refused 4" {
		t.Errorf("got %q, want the table to refuse NULL, a blob and two numbers, by the column's name", out)
	}
	if got, want := drainAll(t, l, reg), (intake.Drained{Accepted: 8, Refused: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, key := range []string{"007", "7", "1e3", "1000", "0x10", "caf\u00e9-3", "cafe\u0301-3", "own-COMMIT"} {
		if n := count(t, l, `SELECT count(*) FROM outbox_operation WHERE idempotency_key = ?`, key); n != 1 {
			t.Errorf("key %q: got %d operations, want 1", key, n)
		}
	}
}

// The table converts nothing: what is not of its kind is refused at the INSERT, by
// the name of a constraint.
func TestTheIntakeTakesEachValueAsItIs(t *testing.T) {
	const texts = "tenant_id subject_id tool_name idempotency_key arguments session_id traceparent"
	l, reg := ledgertest.Open(t), registry(t)
	try := func(column, value, constraint string) {
		t.Helper()
		err := l.Write(context.Background(), func(tx *ledger.Tx) error {
			_, err := tx.Exec(`INSERT INTO outbox_intake SELECT NULL, 'acme', 'shop', 'lamp', 'k', '{}', NULL, 's', NULL, NULL, 1`)
			if err == nil {
				_, err = tx.Exec(`UPDATE outbox_intake SET parked = 0, ` + column + ` = ` + value)
			}
			return err
		})
		if (err != nil) != (constraint != "") || err != nil && !strings.Contains(err.Error(), constraint) {
			t.Errorf("%s = %s: got %v, want %q", column, value, err, constraint)
		}
	}
	for _, column := range strings.Fields(texts) {
		for _, value := range []string{"7", "1.5", "x'37'"} {
			try(column, value, "CHECK constraint failed: "+column+"_is_text")
		}
	}
	for _, column := range []string{"not_before", "turn"} {
		for _, value := range []string{"'123'", "1.5", "1e300", "x'37'", "'a'"} {
			try(column, value, "CHECK constraint failed: "+column+"_is_an_integer")
		}
	}
	try("not_before", "1750000000000.0", "")
	if got := drainAll(t, l, reg); got.Accepted != 1 {
		t.Errorf("got %+v, want the row of a language that binds floats accepted", got)
	}
	if n := count(t, l, `SELECT not_before FROM outbox_operation`); n != 1750000000000 {
		t.Errorf("got not_before %d, want 1750000000000", n)
	}
}

// An empty session or traceparent is none, as at the other entrances.
func TestEmptyIsNone(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	insert(t, l, map[string]any{"session_id": "", "traceparent": ""})
	insert(t, l, nil)
	if got, want := drainAll(t, l, reg), (intake.Drained{Accepted: 1, Repeated: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if n := count(t, l, `SELECT count(*) FROM outbox_operation WHERE session_id IS NULL AND traceparent IS NULL`); n != 1 {
		t.Errorf("got %d operations without both, want 1", n)
	}
}

func TestRowsFromTheShell(t *testing.T) {
	shell := program(t, "sqlite3")
	var major, minor int
	if _, err := fmt.Sscanf(run(t, exec.Command(shell, "--version")), "%d.%d", &major, &minor); err != nil || major == 3 && minor < 37 {
		t.Skipf("SKIPPED: sqlite3 is %d.%d (%v), STRICT needs 3.37", major, minor, err)
	}
	l, reg := ledgertest.Open(t), registry(t)
	run(t, exec.Command(shell, "-bail", "-cmd", ".timeout 30000", l.Path(), `
		CREATE TABLE refunds (id INTEGER PRIMARY KEY, amount INTEGER) STRICT;
		CREATE TRIGGER refund AFTER INSERT ON refunds BEGIN
			INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)
			VALUES ('acme', 'shop', 'lamp', 'refund-' || new.id, json_object('refund', new.id, 'amount', new.amount));
		END;
		INSERT INTO refunds VALUES (17, 1250), (18, 9007199254740993), (19, 3);`))
	if got, want := drain(t, l, reg, 100), (intake.Drained{Accepted: 2, Refused: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := refused(t, l); !strings.HasPrefix(got.message, "arguments/amount: number out of range") {
		t.Errorf("got %+v, want the amount refused", got)
	}
	// The same request through the daemon's own door.
	r := lamp("refund-17", func(r *intake.Request) { r.Arguments = []byte(`{"amount":1250,"refund":17}`) })
	if a := ledgertest.Accept(t, l, reg, r); a.New {
		t.Error("got a new operation, want a repetition of the trigger's row")
	}
}

const pythonWriter = `
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
for i in range(20):
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments) "
               "VALUES ('acme', 'shop', 'lamp', ?, '{}')", ("python-%d" % i,))
    time.sleep(0.005)
    db.execute("COMMIT")
`

// Accepting and draining go on beside an application that keeps the write lock
// for a while, again and again: nothing fails, nothing is lost or taken twice.
func TestAcceptBesideAnotherWriter(t *testing.T) {
	python := program(t, "python3")
	l, reg := ledgertest.Open(t), registry(t)
	writer := exec.Command(python, "-c", pythonWriter, l.Path())
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	drained := 0
	for i := range 200 {
		if a := ledgertest.Accept(t, l, reg, ledgertest.Request("lamp", fmt.Sprintf("lamp-%d", i))); !a.New {
			t.Errorf("lamp-%d: got a repetition", i)
		}
		drained += drain(t, l, reg, 100).Accepted
	}
	if err := writer.Wait(); err != nil {
		t.Errorf("the other writer: %v", err)
	}
	drained += drain(t, l, reg, 100).Accepted
	if n := count(t, l, `SELECT count(*) FROM outbox_operation`); drained != 20 || n != 220 {
		t.Errorf("drained %d of 20 rows, got %d operations, want 220", drained, n)
	}
}

func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIPPED: no %s on this host: %v", name, err)
	}
	return path
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd.Args[0], err, text)
	}
	if strings.HasPrefix(text, "skip:") {
		t.Skip("SKIPPED " + text)
	}
	return text
}
