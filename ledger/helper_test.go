package ledger_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/outboxd/outboxd/ledger"
)

// child names what a test wants of this binary when it runs it once more.
const child = "OUTBOXD_LEDGER_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(child); name != "" {
		if err := children[name](os.Getenv("OUTBOXD_LEDGER_PATH")); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// process is another process that works on the same file.
type process struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(t testing.TB, name, path string, wrap ...string) *process {
	t.Helper()
	argv := append(wrap, os.Args[0])
	p := &process{t: t, cmd: exec.Command(argv[0], argv[1:]...)}
	p.cmd.Env = append(os.Environ(), child+"="+name, "OUTBOXD_LEDGER_PATH="+path)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

// line is the next line that the process says, "" at its end.
func (p *process) line() string {
	if p.out.Scan() {
		return p.out.Text()
	}
	return ""
}

// wants fails the test unless the process says line next.
func (p *process) wants(line string) {
	p.t.Helper()
	if got := p.line(); got != line {
		p.t.Fatalf("the other process said %q, want %q", got, line)
	}
}

// goOn lets a process that waits for its input go on.
func (p *process) goOn() { _, _ = io.WriteString(p.in, "go on\n") }

func waitInput() { _, _ = bufio.NewReader(os.Stdin).ReadString('\n') }

// plain opens the file as an application does, with a driver of its own.
func plain(path string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(5000)&_txlock=immediate")
}

// holdLock keeps the write lock until it is told to go on.
func holdLock(path string) error {
	db, err := plain(path)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	c, err := db.Conn(context.Background())
	if err != nil {
		return err
	}
	if _, err := c.ExecContext(context.Background(), `BEGIN EXCLUSIVE`); err != nil {
		return err
	}
	fmt.Println("held")
	waitInput()
	if _, err := c.ExecContext(context.Background(), `COMMIT`); err != nil {
		return err
	}
	return c.Close()
}

// fresh is a new file, opened, with a table for the tests.
func fresh(t testing.TB, o ledger.Options) *ledger.Ledger {
	t.Helper()
	o.Create = true
	l := reopen(t, filepath.Join(t.TempDir(), "outbox.db"), o)
	mustWrite(t, l, func(tx *ledger.Tx) error {
		_, err := tx.Exec(`CREATE TABLE note (k INTEGER PRIMARY KEY, v TEXT)`)
		return err
	})
	return l
}

func reopen(t testing.TB, path string, o ledger.Options) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), path, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func mustWrite(t testing.TB, l *ledger.Ledger, fn func(*ledger.Tx) error) {
	t.Helper()
	if err := l.Write(context.Background(), fn); err != nil {
		t.Fatalf("write: %v", err)
	}
}

func insert(k int, v string) func(*ledger.Tx) error {
	return func(tx *ledger.Tx) error {
		_, err := tx.Exec(`INSERT INTO note (k, v) VALUES (?, ?)`, k, v)
		return err
	}
}

// keys are the rows as another connection of another driver sees them.
func keys(t testing.TB, path string) map[int]bool {
	t.Helper()
	db, err := plain(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	rows, err := db.Query(`SELECT k FROM note`)
	if err != nil {
		t.Fatalf("read notes: %v", err)
	}
	defer func() { _ = rows.Close() }()
	got := map[int]bool{}
	for rows.Next() {
		var k int
		if err := rows.Scan(&k); err != nil {
			t.Fatal(err)
		}
		got[k] = true
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("read notes: %v", err)
	}
	return got
}

// eventually waits for what another goroutine or process is about to do.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

func payload(bytes int) string { return strings.Repeat("x", bytes) }

var children = map[string]func(path string) error{
	"hold":     holdLock,
	"fill":     fillDisk,
	"open":     openOnce,
	"sync":     failSync,
	"denied":   openDenied,
	"foreign":  foreignWriter,
	"create":   createTogether,
	"complete": completeBroken,
	"upgrade":  upgrade,
	"idle":     holdOpen,
}
