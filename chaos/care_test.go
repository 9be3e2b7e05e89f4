package chaos_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxd/outboxd/chaos"
)

// TestBackupUnderLoad: a backup that is made while everybody writes holds every
// operation that was accepted before it began, opens clean, and disturbs nobody.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	backups, clients := 3, 4
	if full {
		backups, clients = 20, 16
	}
	w := newWorld(t)
	w.configure("", w.http("idem", "idempotent", chaos.Now, ""))
	r := w.up()
	var mu sync.Mutex // guards refs
	var refs []string
	stop := make(chan struct{})
	var load sync.WaitGroup
	for c := range clients {
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				a, err := w.client.Submit(w.ctx, body("idem", fmt.Sprintf("%d-%d", c, i), "{}"), 0)
				if err != nil {
					t.Errorf("submit beside a backup: %v", err)
					return
				}
				mu.Lock()
				refs = append(refs, a.StatusRef)
				mu.Unlock()
			}
		})
	}
	accepted := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return refs[:len(refs):len(refs)]
	}
	for i := range backups {
		w.until("there is a load", func() bool { return len(accepted()) >= (i+1)*100 })
		before := accepted()
		name := fmt.Sprintf("backup-%d", i)
		if out, errs, code := w.command("db", "backup", w.path(name)); code != 0 {
			t.Fatalf("backup: %d\n%s%s", code, out, errs)
		}
		w.holds(name, before)
	}
	close(stop)
	load.Wait()
	equal(t, "alive", r.Alive(), true)
	w.down(r)
	t.Logf("%d operations accepted beside %d backups", len(refs), backups)
}

// holds checks that a copy has these operations, and is sound.
func (w *world) holds(name string, refs []string) {
	w.t.Helper()
	if out, errs, code := w.command("--db", w.path(name), "--socket", w.path("none"), "audit"); code != 0 {
		w.t.Errorf("audit of %s: %d\n%s%s", name, code, out, errs)
	}
	db := w.openFile(name)
	defer func() { _ = db.Close() }()
	for _, ref := range refs {
		var n int
		must(w.t, db.QueryRow(`SELECT count(*) FROM outbox_operation WHERE status_ref = ?`, ref).Scan(&n))
		if n != 1 {
			w.t.Fatalf("%s lacks an operation that was accepted before it began", name)
		}
	}
}

// olderVersion turns the database into one of an older version, with a row of an
// application in it. From the version on that knows it, it may be broken.
func (w *world) olderVersion(version int) {
	w.t.Helper()
	if out, errs, code := w.command("db", "init"); code != 0 {
		w.t.Fatalf("init: %d\n%s%s", code, out, errs)
	}
	db := w.open()
	defer func() { _ = db.Close() }()
	rows, err := db.Query(`SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'outbox\_%' ESCAPE '\'`)
	must(w.t, err)
	var stmts []string
	for rows.Next() {
		var name string
		must(w.t, rows.Scan(&name))
		stmts = append(stmts, `DROP TABLE `+name)
	}
	must(w.t, rows.Close())
	names, err := filepath.Glob("../ledger/migrations/*.sql") // sorted
	must(w.t, err)
	for _, name := range names[:version] {
		text, err := os.ReadFile(name)
		must(w.t, err)
		stmts = append(stmts, string(text))
	}
	stmts = append(stmts, fmt.Sprintf(`INSERT INTO outbox_meta (id, schema_version, lineage) VALUES (1, %d, 'old')`, version),
		`INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments) VALUES ('acme', 'test', 'idem', 'old', '{}')`)
	if version >= markedVersion {
		stmts = append(stmts, `UPDATE outbox_meta SET for_chaos = 1`)
	}
	for _, stmt := range stmts {
		_, err := db.Exec(stmt)
		must(w.t, err)
	}
}

// TestEverybodyAtAnOldFile: a start, a submit and a list come upon a file of an
// older version at the same moment. It is upgraded once, by the daemon; the others
// wait for it, or say that it is older.
func TestEverybodyAtAnOldFile(t *testing.T) {
	t.Parallel()
	rounds := 2
	if full {
		rounds = 30
	}
	said := map[string]int{}
	for range rounds {
		w := newWorld(t)
		w.configure("", w.http("idem", "idempotent", chaos.Now, ""))
		w.olderVersion(1)
		var mu sync.Mutex // guards said
		var others sync.WaitGroup
		for _, args := range [][]string{{"submit", "--tenant", "acme", "--subject", "test", "--tool", "idem", "--key", "new"}, {"list"}} {
			others.Go(func() {
				_, errs, code := w.command(args...)
				word := fmt.Sprint(args[0], " exits with ", code)
				if code != 0 {
					word += " " + codeOf(errs)
				}
				mu.Lock()
				said[word]++
				mu.Unlock()
				if code != 0 && codeOf(errs) != "SCHEMA_OLDER" {
					t.Errorf("%s: %s", word, errs)
				}
			})
		}
		r := w.up()
		others.Wait()
		w.until("the row of the old file is delivered", func() bool { return len(w.seen(chaos.Effect)) >= 1 })
		equal(t, "upgrades", strings.Count(logText(t, w), `"from":1,`), 1)
		w.down(r)
	}
	t.Logf("%d rounds: %v", rounds, said)
}

func codeOf(stderr string) string {
	_, rest, _ := strings.Cut(stderr, `"code":"`)
	code, _, _ := strings.Cut(rest, `"`)
	return code
}

func logText(t *testing.T, w *world) string {
	t.Helper()
	text, err := os.ReadFile(w.daemon.Log)
	must(t, err)
	return string(text)
}

// TestReaderKeepsTheLog: somebody keeps a read transaction open. Work goes on, the
// size of the log is seen and said, and it shrinks by itself once the reader has
// gone.
func TestReaderKeepsTheLog(t *testing.T) {
	t.Parallel()
	pushed, large := 400, 4<<20
	if full {
		pushed, large = 2500, 64<<20
	}
	w := newWorld(t)
	w.configure("", w.http("idem", "idempotent", chaos.Now, ""))
	r := w.up()
	release := w.lock(`BEGIN; SELECT count(*) FROM outbox_operation`)
	var wg sync.WaitGroup
	var next atomic.Int64
	payload := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", 16<<10))
	for range 8 {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(pushed); n = next.Add(1) {
				if _, err := w.client.Submit(w.ctx, body("idem", fmt.Sprint("k", n), payload), 0); err != nil {
					t.Errorf("submit beside a reader: %v", err)
				}
			}
		})
	}
	wg.Wait()
	w.until("everything is delivered", func() bool {
		return w.count(`SELECT count(*) FROM outbox_entry WHERE state = 'delivered'`) == pushed
	})
	bytes := w.metric(r, "outboxd_wal_bytes")
	if bytes < float64(large) {
		t.Errorf("the log has %.0f bytes, want it to be seen growing beyond %d", bytes, large)
	}
	if full {
		w.until("it warns", func() bool { return strings.Contains(logText(t, w), "the write-ahead log has grown") })
		out, _, _ := w.command("db", "doctor", "-o", "table")
		if !strings.Contains(out, fmt.Sprint(os.Getpid(), " (")) || !strings.Contains(out, "warn  log") {
			t.Errorf("the doctor does not name this process:\n%s", out)
		}
	}
	release()
	w.until("the log is short again", func() bool { return w.metric(r, "outboxd_wal_bytes") < 1<<20 })
	w.down(r)
}

// TestStartBesideALongLog: the daemon was killed, its log is long, and somebody
// reads: it is ready in the usual time.
func TestStartBesideALongLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure("", w.http("idem", "idempotent", chaos.Now, ""))
	w.up().Kill()
	release := w.lock(`BEGIN; SELECT count(*) FROM outbox_operation`)
	defer release()
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: w.path("outbox.db")}).EscapedPath()+"?_pragma=busy_timeout(5000)&_pragma=wal_autocheckpoint(0)&_pragma=synchronous(0)")
	must(t, err)
	db.SetMaxOpenConns(1)
	_, err = db.Exec(`CREATE TABLE ballast (x BLOB)`)
	must(t, err)
	for range 50 {
		_, err = db.Exec(`INSERT INTO ballast VALUES (zeroblob(1 << 20))`)
		must(t, err)
	}
	must(t, db.Close())
	st, err := os.Stat(w.path("outbox.db-wal"))
	if err != nil || st.Size() < 50<<20 {
		t.Fatalf("the log has %d bytes (%v), want 50 MiB", st.Size(), err)
	}
	began := time.Now()
	r := w.up()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it was ready after %s", took)
	} else {
		t.Logf("ready after %s", took.Round(time.Millisecond))
	}
	w.wantStatus("beside the reader", w.settled(w.submit("idem", "k").StatusRef), "succeeded", "")
	w.down(r)
}
