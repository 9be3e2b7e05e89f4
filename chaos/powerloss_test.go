package chaos_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/outboxd/outboxd/chaos"
	"github.com/outboxd/outboxd/chaos/disk"
)

// TestPowerLoss: system calls of the real daemon are recorded, and every state is
// built that a power cut could have left. Each must open, be whole, hold whatever
// was acknowledged, say delivered where an answer said so, and have a mark for
// every request that had left.
func TestPowerLoss(t *testing.T) {
	seeds, perOp, operations := 1, 2, 20
	if full {
		seeds, perOp, operations = 5, 6, 60
	}
	for i := range seeds {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			powerLoss(t, operations, perOp)
		})
	}
}

func powerLoss(t *testing.T, operations, perOp int) {
	n := uint64(seed(t))
	w := newWorld(t)
	rec := w.record(operations)
	d := disk.New(rec, n)
	judges := w.judges(rec)
	for _, op := range rec.Ops {
		d.Do(op)
		for _, s := range d.Cuts(perOp) {
			judges.look(s, "power loss", "states")
		}
	}
	prefixes := disk.New(rec, n)
	for _, op := range rec.Ops {
		prefixes.Do(op)
		if s, ok := prefixes.Prefix(); ok {
			judges.look(s, "power loss", "prefixes of the calls")
		}
	}
	judges.done()
}

// record runs two traced daemons, the first of which is killed, while clients
// submit, and returns what they did.
func (w *world) record(operations int) disk.Record {
	w.t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		absent(w.t, "strace is needed")
	}
	w.configureMix("")
	w.fromTemplate()
	before, err := os.ReadFile(w.path("outbox.db"))
	must(w.t, err)
	rec := disk.Record{Before: map[string][]byte{"outbox.db": before}}
	for _, part := range []int{operations / 2, operations - operations/2} {
		traced := w.daemon
		trace := w.path(fmt.Sprint("trace-", len(rec.Ops)))
		traced.Argv = []string{"strace", "-f", "--seccomp-bpf", "-xx", "-s", "1048576", "-o", trace, "-e", "trace=" + disk.Calls, binary}
		r := w.upWith(traced)
		f := w.feed(3, fmt.Sprint("part-", len(rec.Ops)))
		w.until("the operations are settled", func() bool {
			return w.count(`SELECT count(*) FROM outbox_entry WHERE due_at IS NULL`) >= part
		})
		f.end()
		w.killTraced(r)
		text, err := os.Open(trace)
		must(w.t, err)
		err = rec.Read(text, w.dir, "outbox.db", promises)
		_ = text.Close()
		must(w.t, err)
	}
	return rec
}

// What leaves the daemon and promises something: an answer that names an
// operation, and a request.
var (
	answered = regexp.MustCompile(`^HTTP/1\.1 20[02] (?s:.*)"status_ref":"([0-9a-f-]{36})"`)
	status   = regexp.MustCompile(`"status":"([a-z_]+)"`)
	request  = regexp.MustCompile(`^POST /(\w+)/(?s:.*)\r\nOutbox-Operation: ([0-9a-f-]{36})\r\n`)
)

func promises(data []byte) bool { return answered.Match(data) || request.Match(data) }

// judges look at states, two at a time.
type judges struct {
	w      *world
	rec    disk.Record
	states chan disk.State
	wg     sync.WaitGroup

	mu  sync.Mutex // guards bad
	bad int
}

func (w *world) judges(rec disk.Record) *judges {
	j := &judges{w: w, rec: rec, states: make(chan disk.State)}
	for i := range 2 {
		dir, err := os.MkdirTemp(memory(), "obxp")
		must(w.t, err)
		w.t.Cleanup(func() { _ = os.RemoveAll(dir) })
		j.wg.Go(func() {
			for s := range j.states {
				j.judge(s, filepath.Join(dir, fmt.Sprint(i)))
			}
		})
	}
	return j
}

// memory is a directory in memory, where there is one.
func memory() string {
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		return "/dev/shm"
	}
	return ""
}

func (j *judges) look(s disk.State, campaign, name string) {
	figure(campaign, name, 1)
	j.states <- s
}

func (j *judges) done() {
	close(j.states)
	j.wg.Wait()
	said := 0
	for _, op := range j.rec.Ops {
		if op.Kind == disk.Said {
			said++
		}
	}
	j.w.t.Logf("%d calls, %d promises", len(j.rec.Ops), said)
	if said < 20 {
		j.w.t.Errorf("only %d promises were recorded: nothing was shown", said)
	}
	if j.bad > 0 {
		j.w.t.Errorf("%d states are wrong", j.bad)
	}
}

func (j *judges) judge(s disk.State, dir string) {
	err := opens(s, dir)
	if err == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.bad++; j.bad == 1 {
		j.w.t.Errorf("after op %d, %s: %v\n%s", s.At, s.How, err, disk.Describe(j.rec, s.At))
		for name, b := range s.Files {
			must(j.w.t, os.WriteFile(j.w.path("lost-"+name), b, 0o600))
		}
	}
}

// opens lets SQLite recover a state, and compares it with what was said.
func opens(s disk.State, dir string) error {
	_ = os.RemoveAll(dir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for name, b := range s.Files {
		if strings.HasSuffix(name, "-shm") || strings.HasSuffix(name, ".lock") {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "outbox.db")+"?_pragma=synchronous(0)")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	var whole string
	if err := db.QueryRow(`PRAGMA integrity_check(1)`).Scan(&whole); err != nil || whole != "ok" {
		return fmt.Errorf("integrity: %q, %w", whole, err)
	}
	for _, said := range s.Said {
		if err := kept(db, said); err != nil {
			return err
		}
	}
	return nil
}

// kept: the file keeps what was said.
func kept(db *sql.DB, said []byte) error {
	if m := answered.FindSubmatch(said); m != nil {
		state, _, err := stored(db, string(m[1]))
		told := status.FindSubmatch(said[bytes.Index(said, []byte("\r\n\r\n")):])
		if err == nil && told != nil && string(told[1]) == "succeeded" && state != "delivered" {
			err = fmt.Errorf("was answered as succeeded and is %s", state)
		}
		if err != nil {
			return fmt.Errorf("acknowledged %s: %w", m[1], err)
		}
		return nil
	}
	m := request.FindSubmatch(said)
	state, marked, err := stored(db, string(m[2]))
	if err == nil && !marked {
		err = fmt.Errorf("is %s and was never marked", state)
	}
	if err != nil {
		return fmt.Errorf("sent for %s: %w", m[2], err)
	}
	return nil
}

func stored(db *sql.DB, ref string) (state string, marked bool, err error) {
	err = db.QueryRow(`SELECT e.state, e.last_sent_at IS NOT NULL FROM outbox_operation o
		JOIN outbox_entry e ON e.operation_id = o.id WHERE o.status_ref = ?`, ref).Scan(&state, &marked)
	if err != nil {
		err = fmt.Errorf("is gone: %w", err)
	}
	return state, marked, err
}

// killTraced kills the daemon below strace, which then writes down the rest.
func (w *world) killTraced(r *chaos.Running) {
	w.t.Helper()
	var holder struct{ PID int }
	text, err := os.ReadFile(w.path("outbox.db.lock"))
	must(w.t, err)
	first, _, _ := strings.Cut(string(text), "\n") // what follows is about tokens
	must(w.t, json.Unmarshal([]byte(first), &holder))
	must(w.t, syscall.Kill(holder.PID, syscall.SIGKILL))
	w.exit(r.Process)
}
