package intake_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// insert is what an application does: plain SQL. A text that is not UTF-8 goes
// in as a blob that SQLite is told to take for text.
func insert(t testing.TB, l *ledger.Ledger, r map[string]any) {
	t.Helper()
	row := map[string]any{"tenant_id": "acme", "subject_id": "shop", "tool_name": "lamp", "idempotency_key": "k", "arguments": "{}"}
	for name, v := range r {
		if s, ok := v.(string); ok {
			v = []byte(s)
		}
		row[name] = v
	}
	text := func(name string) any {
		if s, ok := row[name].(string); ok {
			return []byte(s)
		}
		return row[name]
	}
	ledgertest.Write(t, l, func(tx *ledger.Tx) error {
		_, err := tx.Exec(`INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments,
			not_before, session_id, turn, traceparent)
			VALUES (CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT),
			?, CAST(? AS TEXT), ?, CAST(? AS TEXT))`,
			text("tenant_id"), text("subject_id"), text("tool_name"), text("idempotency_key"), text("arguments"),
			row["not_before"], text("session_id"), row["turn"], text("traceparent"))
		return err
	})
}

func drain(t testing.TB, l *ledger.Ledger, reg *contract.Registry, n int) intake.Drained {
	t.Helper()
	var d intake.Drained
	ledgertest.Write(t, l, func(tx *ledger.Tx) (err error) {
		d, err = intake.Drain(tx, reg, n)
		return err
	})
	return d
}

// drainAll drains until there is no more.
func drainAll(t testing.TB, l *ledger.Ledger, reg *contract.Registry) (sum intake.Drained) {
	t.Helper()
	for more := true; more; {
		d := drain(t, l, reg, 100)
		more = d.More
		sum.Accepted += d.Accepted
		sum.Repeated += d.Repeated
		sum.Refused += d.Refused
		sum.Parked += d.Parked
	}
	return sum
}

type refusal struct{ code, message string }

// refused gives the last refusal.
func refused(t *testing.T, l *ledger.Ledger) (r refusal) {
	t.Helper()
	ledgertest.Read(t, l, func(v *ledger.View) error {
		return v.One(`SELECT code, message FROM outbox_refused ORDER BY id DESC LIMIT 1`).Scan(&r.code, &r.message)
	})
	return r
}

func TestDrainRefuses(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	for _, c := range []struct {
		name    string
		row     map[string]any
		code    string
		message string // part of it
	}{
		{"empty key", map[string]any{"idempotency_key": ""}, intake.KeyRequired, "idempotency_key: is absent, empty or blank"},
		{"blank key", map[string]any{"idempotency_key": " "}, intake.KeyRequired, "idempotency_key: is absent, empty or blank"},
		{"key with newline", map[string]any{"idempotency_key": "a\nb"}, intake.InputInvalid, "idempotency_key: has a control character"},
		{"key with NUL", map[string]any{"idempotency_key": "a\x00b"}, intake.InputInvalid, "idempotency_key: has a control character"},
		{"key that is not UTF-8", map[string]any{"idempotency_key": "kite\xff"}, intake.InputInvalid, "idempotency_key: byte 4 is not UTF-8"},
		{"key of 300 bytes", map[string]any{"idempotency_key": strings.Repeat("k", 300)}, intake.InputInvalid, "idempotency_key: has 300 bytes"},
		{"key of 5,000 bytes", map[string]any{"idempotency_key": strings.Repeat("k", 5000)}, intake.InputInvalid, "idempotency_key: has 5000 bytes"},
		{"raw key with emoji", map[string]any{"tool_name": "raw", "idempotency_key": "a🪁"}, intake.InputInvalid, "idempotency_key: byte 1 is not printable ASCII"},
		{"empty tenant", map[string]any{"tenant_id": ""}, intake.InputInvalid, "tenant_id: is absent"},
		{"subject with NUL", map[string]any{"subject_id": "a\x00"}, intake.InputInvalid, "subject_id: has a control"},
		{"tool that is not UTF-8", map[string]any{"tool_name": "\xc0\x80"}, intake.InputInvalid, "tool_name: byte 0 is not UTF-8"},
		{"tool of a megabyte", map[string]any{"tool_name": strings.Repeat("t", 1<<20)}, intake.InputInvalid, "tool_name: has 1048576 bytes"},
		{"no JSON", map[string]any{"arguments": "lamp"}, intake.InputInvalid, "arguments: no JSON"},
		{"no arguments", map[string]any{"arguments": ""}, intake.InputInvalid, "arguments: is empty"},
		{"member twice", map[string]any{"arguments": `{"kind":1,"kind":2}`}, intake.InputInvalid, "arguments/kind: member appears twice"},
		{"not UTF-8", map[string]any{"arguments": "{\"a\":\"\xff\"}"}, intake.InputInvalid, "arguments: byte 6 is not UTF-8"},
		{"NUL behind JSON", map[string]any{"arguments": "{}\x00"}, intake.InputInvalid, "arguments: no JSON"},
		{"2^53+1", map[string]any{"arguments": `{"account":9007199254740993}`}, intake.InputInvalid, "arguments/account: number out of range"},
		{"1e400", map[string]any{"arguments": `[1e400]`}, intake.InputInvalid, "arguments/0: number out of range"},
		{"BOM", map[string]any{"arguments": "\xef\xbb\xbf{}"}, intake.InputInvalid, "arguments: starts with a BOM"},
		{"33 levels", map[string]any{"arguments": strings.Repeat("[", 33) + strings.Repeat("]", 33)}, intake.InputInvalid, "more than 32 levels"},
		{"100,000 brackets", map[string]any{"arguments": strings.Repeat("[", 100_000)}, intake.InputInvalid, "arguments: 100000 bytes"},
		{"5,000,000 brackets", map[string]any{"arguments": strings.Repeat("[", 5_000_000)}, intake.InputInvalid, "arguments: has 5000000 bytes"},
		{"before 1970", map[string]any{"not_before": -1}, intake.InputInvalid, "not_before: is out of range"},
		{"year 1", map[string]any{"not_before": int64(-62135596800000)}, intake.InputInvalid, "not_before: is out of range"},
		{"far future", map[string]any{"not_before": int64(1) << 62}, intake.InputInvalid, "not_before: is out of range"},
		{"blank session", map[string]any{"session_id": " "}, intake.InputInvalid, "session: is absent, empty or blank"},
		{"session of a megabyte", map[string]any{"session_id": strings.Repeat("s", 1<<20)}, intake.InputInvalid, "session: has 1048576 bytes"},
		{"turn 0", map[string]any{"session_id": "s", "turn": 0}, intake.InputInvalid, "turn: is out of range"},
		{"turn without session", map[string]any{"turn": 1}, intake.InputInvalid, "turn: stands without a session"},
		{"traceparent", map[string]any{"traceparent": "x\xff"}, intake.InputInvalid, "traceparent: is no traceparent"},
		{"traceparent of a megabyte", map[string]any{"traceparent": strings.Repeat("0", 1<<20)}, intake.InputInvalid, "traceparent: has 1048576 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			insert(t, l, c.row)
			if got, want := drainAll(t, l, reg), (intake.Drained{Refused: 1}); got != want {
				t.Fatalf("got %+v, want %+v", got, want)
			}
			if got := refused(t, l); got.code != c.code || !strings.Contains(got.message, c.message) {
				t.Errorf("got %+v, want %s with %q", got, c.code, c.message)
			}
			keptBytes(t, l, c.row)
			if n := count(t, l, `SELECT count(*) FROM outbox_intake`); n != 0 {
				t.Errorf("got %d rows left in the intake, want none", n)
			}
		})
	}
}

// keptBytes compares what stands in outbox_refused with what was inserted.
func keptBytes(t *testing.T, l *ledger.Ledger, row map[string]any) {
	t.Helper()
	for name, want := range row {
		var got []byte
		ledgertest.Read(t, l, func(v *ledger.View) error {
			return v.One(`SELECT CAST(CASE ? WHEN 'tenant_id' THEN tenant_id WHEN 'subject_id' THEN subject_id
				WHEN 'tool_name' THEN tool_name WHEN 'idempotency_key' THEN idempotency_key WHEN 'arguments' THEN arguments
				WHEN 'not_before' THEN not_before WHEN 'session_id' THEN session_id WHEN 'turn' THEN turn
				WHEN 'traceparent' THEN traceparent END AS BLOB) FROM outbox_refused ORDER BY id DESC LIMIT 1`, name).Scan(&got)
		})
		if !bytes.Equal(got, fmt.Append(nil, want)) {
			t.Errorf("%s: the refusal keeps %d bytes, want the %d that were inserted", name, len(got), len(fmt.Append(nil, want)))
		}
	}
}

func TestDrainMakesOperations(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	ledgertest.Session(t, l, "s1", 9)
	r := full("kite-204")
	insert(t, l, map[string]any{
		"idempotency_key": "kite-204", "arguments": string(r.Arguments), "not_before": r.NotBefore.UnixMilli(),
		"session_id": "s1", "turn": 4, "traceparent": r.Trace,
	})
	if got, want := drain(t, l, reg, 10), (intake.Drained{Accepted: 1}); got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	// The same request through the other door is a repetition.
	r.Origin = contract.Origin{}
	if a := ledgertest.Accept(t, l, reg, r); a.New || a.State != entry.Pending {
		t.Errorf("got %+v, want a repetition of the row", a)
	}
}

func TestDrainTellsRepetitionFromConflict(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	ledgertest.Accept(t, l, reg, lamp("kite-204", func(r *intake.Request) { r.Arguments = []byte(`{"n":1}`) }))
	insert(t, l, map[string]any{"idempotency_key": "kite-204", "arguments": `{"n": 1}`})
	insert(t, l, map[string]any{"idempotency_key": "kite-204", "arguments": `{"n":2}`})
	insert(t, l, map[string]any{"idempotency_key": "kite-205"})
	insert(t, l, map[string]any{"idempotency_key": "kite-205"})
	if got, want := drain(t, l, reg, 10), (intake.Drained{Accepted: 1, Repeated: 2, Refused: 1}); got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	want := refusal{intake.KeyConflict, "another request has this key; it differs in arguments"}
	if got := refused(t, l); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestOneBadRowDoesNotStopTheOthers(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	for i := range 100 {
		row := map[string]any{"idempotency_key": fmt.Sprintf("kite-%d", i)}
		if i == 41 {
			row["arguments"] = "\xff\x00" + strings.Repeat("[", 70_000)
		}
		insert(t, l, row)
	}
	if got, want := drain(t, l, reg, 500), (intake.Drained{Accepted: 99, Refused: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if n := count(t, l, `SELECT count(*) FROM outbox_operation`); n != 99 {
		t.Errorf("got %d operations, want 99", n)
	}
}

func TestDrainStopsAtItsLimits(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	for i := range 7 {
		insert(t, l, map[string]any{"idempotency_key": fmt.Sprint(i), "arguments": strings.Repeat("x", 2<<20)})
	}
	var sizes []int
	for more := true; more; {
		d := drain(t, l, reg, 3)
		sizes, more = append(sizes, d.Refused), d.More
	}
	if diff := cmp.Diff([]int{2, 2, 2, 1}, sizes); diff != "" {
		t.Errorf("refused at a time (-want +got): two megabytes each\n%s", diff)
	}
	for i := range 7 {
		insert(t, l, map[string]any{"idempotency_key": fmt.Sprint(i)})
	}
	if d := drain(t, l, reg, 3); d.Accepted != 3 || !d.More {
		t.Errorf("got %+v, want 3 of 7 and more", d)
	}
}

func TestDrainIsAllOrNothing(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	insert(t, l, map[string]any{"idempotency_key": "good"})
	insert(t, l, map[string]any{"idempotency_key": ""})
	insert(t, l, map[string]any{"tool_name": "unknown"})
	stop := errors.New("stop")
	if err := l.Write(context.Background(), func(tx *ledger.Tx) error {
		d, err := intake.Drain(tx, reg, 10)
		if want := (intake.Drained{Accepted: 1, Refused: 1, Parked: 1}); d != want {
			t.Errorf("got %+v, want %+v", d, want)
		}
		return errors.Join(err, stop)
	}); !errors.Is(err, stop) {
		t.Fatalf("got error %v, want %v", err, stop)
	}
	for query, want := range map[string]int{
		`SELECT count(*) FROM outbox_intake WHERE parked = 0`: 3,
		`SELECT count(*) FROM outbox_operation`:               0,
		`SELECT count(*) FROM outbox_refused`:                 0,
	} {
		if got := count(t, l, query); got != want {
			t.Errorf("%s: got %d, want %d", query, got, want)
		}
	}
}

func TestRowOfAnUnknownToolWaits(t *testing.T) {
	l, old := ledgertest.Open(t), registry(t)
	for i := range 5 {
		insert(t, l, map[string]any{"tool_name": "bell", "idempotency_key": fmt.Sprint(i)})
	}
	insert(t, l, map[string]any{"tool_name": "gone"})
	insert(t, l, map[string]any{"idempotency_key": "k"})
	if got, want := drain(t, l, old, 10), (intake.Drained{Accepted: 1, Parked: 6}); got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	if got := drain(t, l, old, 10); got != (intake.Drained{}) {
		t.Errorf("got %+v again, want nothing: parked rows cost nothing", got)
	}
	reloaded := ledgertest.Registry(t, ledgertest.Tool("lamp", entry.Idempotent), ledgertest.Tool("bell", entry.Opaque))
	for _, step := range []struct {
		reg                *contract.Registry
		unparked, parkedAt int
	}{{old, 0, 6}, {reloaded, 4, 2}, {reloaded, 1, 1}, {reloaded, 0, 1}} {
		ledgertest.Write(t, l, func(tx *ledger.Tx) error {
			n, err := intake.Unpark(tx, step.reg, 4)
			if n != step.unparked {
				t.Errorf("unparked %d rows, want %d", n, step.unparked)
			}
			return err
		})
		ledgertest.Read(t, l, func(v *ledger.View) error {
			n, err := intake.Parked(v)
			if n != step.parkedAt {
				t.Errorf("got %d parked rows, want %d", n, step.parkedAt)
			}
			return err
		})
	}
	if got, want := drain(t, l, reloaded, 10), (intake.Drained{Accepted: 5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Refusals of rows that somebody inserted with an id of their own.
func TestAnyRowID(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	ledgertest.Write(t, l, func(tx *ledger.Tx) error {
		_, err := tx.Exec(`INSERT INTO outbox_intake (id, tenant_id, subject_id, tool_name, idempotency_key, arguments)
			VALUES (-5, 'a', 'b', 'lamp', 'k1', '{}'), (9223372036854775807, 'a', 'b', 'lamp', 'k2', '{}'), (0, 'a', 'b', 'lamp', '', '{}')`)
		return err
	})
	if got, want := drain(t, l, reg, 10), (intake.Drained{Accepted: 2, Refused: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// An application may have chosen UTF-16 for its file: limits hold in UTF-8.
func TestUTF16File(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, stmt := range []string{`PRAGMA encoding = 'UTF-16le'`, `PRAGMA journal_mode = WAL`, `CREATE TABLE app (a)`} {
		if _, err := db.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	l, reg := ledgertest.OpenAt(t, path), registry(t)
	for key, args := range map[string]string{
		strings.Repeat("k", 255): `"` + strings.Repeat("x", 65534) + `"`,
		strings.Repeat("k", 256): `{}`,
		"kite🪁":                  `{"a":"é🪁"}`,
		"long":                   `"` + strings.Repeat("x", 65535) + `"`,
	} {
		ledgertest.Write(t, l, func(tx *ledger.Tx) error {
			_, err := tx.Exec(`INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)
				VALUES ('acme', 'shop', 'lamp', ?, ?)`, key, args)
			return err
		})
	}
	if got, want := drain(t, l, reg, 10), (intake.Drained{Accepted: 2, Refused: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestLongMessageIsCut(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	name := strings.Repeat("é", 150)
	insert(t, l, map[string]any{
		"tenant_id": "\x01", "subject_id": "\x01", "idempotency_key": "\x01", "session_id": "\x01", "turn": -1, "not_before": 5,
		"arguments": `{"` + name + `":{"` + name + `":1e999}}`, "traceparent": "x",
	})
	drain(t, l, reg, 10)
	if got := refused(t, l).message; len(got) > 1003 || strings.ContainsRune(got, 0xfffd) {
		t.Errorf("got a message of %d bytes: %s", len(got), got)
	}
}

// FuzzDrain: every row becomes one thing or another, and none stays or stops
// the drain.
func FuzzDrain(f *testing.F) {
	l, reg := ledgertest.Open(f), registry(f)
	f.Add("acme", "lamp", "kite-1", `{"a":1}`, "s", "", int64(1), time.Now().UnixMilli())
	f.Add("\xff", "lamp", "\x00", "[[[[", " ", "00-x", int64(-1), int64(-1))
	f.Fuzz(func(t *testing.T, tenant, tool, key, args, session, trace string, turn, notBefore int64) {
		insert(t, l, map[string]any{"tenant_id": tenant, "tool_name": tool, "idempotency_key": key, "arguments": args,
			"session_id": session, "traceparent": trace, "turn": turn, "not_before": notBefore})
		d := drain(t, l, reg, 10)
		if sum := d.Accepted + d.Repeated + d.Refused + d.Parked; sum != 1 {
			t.Fatalf("got %+v, want one row in one place", d)
		}
	})
}
