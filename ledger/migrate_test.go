package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

// olderFile makes a closed file of the first version with so many rows in
// outbox_refused.
func olderFile(t testing.TB, rows int) string {
	t.Helper()
	text, err := os.ReadFile("migrations/0001_live.sql")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "old.db")
	db, err := plain(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, stmt := range []string{
		`PRAGMA journal_mode = WAL`, string(text),
		`INSERT INTO outbox_meta (id, schema_version, lineage) VALUES (1, 1, 'old')`,
		fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO outbox_refused (tenant_id, subject_id, tool_name, idempotency_key, arguments, code, message, refused_at)
			SELECT 't', 's', 'tool', 'key-' || i, '{}', 'C', 'm', i FROM n WHERE i <= %d`, rows, rows),
	} {
		if _, err := db.Exec(stmt); err != nil {
			t.Fatalf("make an older file: %v", err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// populate gives a file of the first version operations with entries.
func populate(t testing.TB, path string, n int) {
	t.Helper()
	db, err := plain(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, stmt := range []string{
		`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO outbox_operation (status_ref, tenant_id, subject_id, tool_name, idempotency_key, arguments, request_sha256,
			effect, wire_key, input_revision, output_revision, effect_revision, handler_revision, producer_revision, policy_revision, accepted_at)
			SELECT printf('%%036d', i), 't', 's', 'tool', 'key-' || i, '{}', zeroblob(32), 'opaque', 'w' || i, '', '', '', '', '', '', i FROM n`,
		`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO outbox_entry (operation_id, tool_name, state, due_at, round_at, changed_at) SELECT i, 'tool', 'pending', i, i, i FROM n`,
	} {
		if _, err := db.Exec(fmt.Sprintf(stmt, n)); err != nil {
			t.Fatalf("fill an older file: %v", err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// schema is every object of a file with how it was made.
func schema(t *testing.T, path string) (list []string) {
	t.Helper()
	db, err := plain(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	rows, err := db.Query(`SELECT type || ' ' || name || ' ' || COALESCE(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite\_%' ESCAPE '\'`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return list
}

// version is what a closed file says, and how many rows it has.
func version(t *testing.T, path string) (v, rows int64) {
	t.Helper()
	db, err := plain(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.QueryRow(`SELECT schema_version, (SELECT count(*) FROM outbox_operation) FROM outbox_meta`).Scan(&v, &rows)
	if err != nil {
		t.Fatalf("read version: %v", err)
	}
	return v, rows
}

func TestAnUpgradedFileIsMadeAsANewOne(t *testing.T) {
	path := olderFile(t, 3)
	var steps []int64
	l := openedAt(t, path, ledger.Options{Migrate: true, Migrating: func(from, to int64) {
		if to != ledger.SchemaVersion {
			t.Errorf("told of an upgrade to %d, want %d", to, ledger.SchemaVersion)
		}
		steps = append(steps, from)
	}})
	if n := refusals(t, l); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if len(steps) != int(ledger.SchemaVersion)-1 || !slices.IsSorted(steps) || steps[0] != 1 {
		t.Errorf("told of steps from %v, want each from 1 to %d once", steps, ledger.SchemaVersion-1)
	}
	want := live(t)
	if err := want.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := schema(t, path), schema(t, want.Path()); !slices.Equal(got, want) {
		t.Errorf("the upgraded file has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if v, _ := version(t, path); v != ledger.SchemaVersion {
		t.Errorf("version %d, want %d", v, ledger.SchemaVersion)
	}
}

func TestWhoMayNotUpgradeRefusesAndChangesNothing(t *testing.T) {
	path := olderFile(t, 1)
	before := schema(t, path)
	for _, o := range []ledger.Options{{}, {Create: true}, {ReadOnly: true}} {
		if err := openError(t, path, o); !errors.Is(err, ledger.ErrOlder) || ledger.Code(err) != "SCHEMA_OLDER" {
			t.Errorf("open with %+v: %v, want %v", o, err, ledger.ErrOlder)
		}
	}
	if !slices.Equal(before, schema(t, path)) {
		t.Error("the schema changed")
	}
}

func TestAFileOfANewerVersionIsLeftAlone(t *testing.T) {
	l := live(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := plain(l.Path())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`UPDATE outbox_meta SET schema_version = schema_version + 1`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, o := range []ledger.Options{{Migrate: true}, {}, {ReadOnly: true}} {
		if err := openError(t, l.Path(), o); !errors.Is(err, ledger.ErrNewer) {
			t.Errorf("open with %+v: %v, want %v", o, err, ledger.ErrNewer)
		}
	}
}

// upgrade is a process that says each step before it does it.
func upgrade(path string) error {
	l, err := ledger.Open(context.Background(), path, ledger.Options{Migrate: true, Migrating: func(from, _ int64) {
		fmt.Println("step", from)
		if os.Getenv(stepwise) != "" {
			waitInput()
		}
	}})
	if err != nil {
		return err
	}
	fmt.Println("done")
	return l.Close()
}

// stepwise makes the child wait for its parent before each step.
const stepwise = "OUTBOXD_LEDGER_STEPWISE"

// However an upgrade is cut off, the file is before or after one of its steps, and
// the next start goes on from there.
func TestUpgradeKilledAtAnyMoment(t *testing.T) {
	rows, kills := 5000, 6
	if os.Getenv("OUTBOXD_CHAOS") == "full" {
		rows, kills = 200_000, 20
	}
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewSource(seed))
	t.Setenv(stepwise, "1")
	master := olderFile(t, 10)
	populate(t, master, rows)
	whole, err := os.ReadFile(master)
	if err != nil {
		t.Fatal(err)
	}
	cut := map[int64]int{}
	for range kills {
		path := filepath.Join(t.TempDir(), "old.db")
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		within := soon
		for last := int64(1); last < ledger.SchemaVersion; {
			killUpgrade(t, path, r, within)
			v, n := version(t, path)
			if v < last || v > ledger.SchemaVersion || n != int64(rows) {
				t.Fatalf("after a kill the file says version %d with %d rows, it said %d with %d", v, n, last, rows)
			}
			cut[v]++
			if within *= 2; v > last {
				within = soon
			}
			last = v
		}
		l := openedAt(t, path, ledger.Options{})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got, want := schema(t, path), freshSchema(t); !slices.Equal(got, want) {
			t.Fatalf("the upgraded file has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	t.Logf("kills left the file at version %v", cut)
	if len(cut) < 2 {
		t.Errorf("no kill hit the upgrade between two steps: %v", cut)
	}
}

func freshSchema(t *testing.T) []string {
	t.Helper()
	l := live(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return schema(t, l.Path())
}

// soon is within what time an upgrade is killed first; a step that takes longer gets
// more from kill to kill.
const soon = 4 * time.Millisecond

// killUpgrade lets an upgrade do up to one step, and kills it somewhere in it.
func killUpgrade(t *testing.T, path string, r *rand.Rand, within time.Duration) {
	t.Helper()
	p := start(t, "upgrade", path)
	if line := p.line(); !strings.HasPrefix(line, "step") {
		t.Fatalf("the upgrade said %q", line)
	}
	p.goOn()
	<-time.After(time.Duration(r.Int63n(int64(within))))
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
}

// Several that may upgrade, and as many that may not, at once: each step is done
// once, and nobody meets anything but a whole file or a clear refusal.
func TestUpgradeAtOnce(t *testing.T) {
	rounds := 3
	if os.Getenv("OUTBOXD_CHAOS") == "full" {
		rounds = 30
	}
	for range rounds {
		path := olderFile(t, 100)
		var all sync.WaitGroup
		for i := range 6 {
			o := []ledger.Options{{Migrate: true}, {Create: true}, {ReadOnly: true}}[i%3]
			all.Go(func() {
				l, err := ledger.Open(context.Background(), path, o)
				if err == nil {
					err = l.Close()
				}
				if err != nil && (o.Migrate || !errors.Is(err, ledger.ErrOlder)) {
					t.Errorf("open with %+v: %v", o, err)
				}
			})
		}
		all.Wait()
		if v, _ := version(t, path); v != ledger.SchemaVersion {
			t.Fatalf("version %d, want %d", v, ledger.SchemaVersion)
		}
	}
}
