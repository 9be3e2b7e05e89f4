package chaos_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/chaos"
)

// syncCalls are those that make writes durable.
const syncCalls = "fsync,fdatasync"

// TestPower: the daemon dies between the write to the log and its fsync, so the
// next one finds a row that no disk may have. It answers a replay of that key
// only after a synced commit of its own.
func TestPower(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("strace"); err != nil {
		absent(t, "strace is needed")
	}
	w := newWorld(t)
	w.configure("worker: {poll_interval: 5m}", w.http("idem", "idempotent", chaos.Silent, ""))
	key := w.cutBeforeSync()
	ref := w.found(key)
	traced := w.daemon
	traced.Argv = append([]string{"strace", "-f", "-yy", "-o", w.path("trace"), "-e", "trace=" + syncCalls + ",write,pwrite64,sendto"}, binary)
	r := w.upWith(traced)
	a := w.submit("idem", key)
	equal(t, "reference of the replay", a.StatusRef, ref)
	equal(t, "code of the replay", a.Code, "PENDING")
	r.Kill()
	trace, err := os.ReadFile(w.path("trace"))
	must(t, err)
	must(t, answeredAfterSync(string(trace)))
}

// cutBeforeSync kills the daemon as it is about to sync a submit, and returns
// the submit's key. Other things are synced too: it tries until it was a submit.
func (w *world) cutBeforeSync() string {
	w.t.Helper()
	for i := range 10 {
		r := w.up()
		tracer := w.attach(r.PID())
		key := fmt.Sprint("key-", i)
		_, err := w.client.Submit(w.ctx, body("idem", key, "{}"), 0)
		if err == nil {
			w.t.Fatalf("%s was acknowledged, though no fsync ended", key)
		}
		equal(w.t, "exit of the daemon", w.exit(r.Process), -1)
		w.exit(tracer)
		if w.found(key) != "" {
			w.t.Logf("killed before the fsync of %s", key)
			return key
		}
	}
	w.t.Fatal("no submit was written and not synced: nothing was shown")
	return ""
}

// attach makes the first fsync of a running process its last call.
func (w *world) attach(pid int) *chaos.Process {
	w.t.Helper()
	log := w.path("attach")
	_ = os.Remove(log)
	said, err := os.Create(w.path("strace.err"))
	must(w.t, err)
	defer said.Close()
	cmd := exec.Command("strace", "-f", "-p", fmt.Sprint(pid), "-o", log, "-e", "trace="+syncCalls, "-e", "inject="+syncCalls+":signal=SIGKILL")
	cmd.Stderr = said
	p, err := chaos.Start(cmd)
	must(w.t, err)
	w.t.Cleanup(p.Kill)
	w.until("strace attaches", func() bool {
		text := tail(said.Name(), 5)
		if !p.Alive() && strings.Contains(text, "not permitted") {
			absent(w.t, "strace may not attach: "+text)
		}
		return strings.Contains(text, "attached")
	})
	time.Sleep(100 * time.Millisecond) // to all threads
	return p
}

// found is the reference that a copy of the file has for a key; the file itself
// is left as the kill left it.
func (w *world) found(key string) (ref string) {
	w.t.Helper()
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(w.path("outbox.db" + suffix))
		must(w.t, err)
		must(w.t, os.WriteFile(w.path("copy.db"+suffix), b, 0o600))
	}
	_ = os.Remove(w.path("copy.db-shm"))
	db := w.openFile("copy.db")
	defer db.Close()
	must(w.t, db.QueryRow(`SELECT COALESCE(max(status_ref), '') FROM outbox_operation WHERE idempotency_key = ?`, key).Scan(&ref))
	return ref
}

var (
	syncsLog = regexp.MustCompile(`\bf(?:data)?sync\(\d+<[^>]*outbox\.db-wal>`)
	writeLog = regexp.MustCompile(`\bpwrite64\(\d+<[^>]*outbox\.db-wal>`)
	replies  = regexp.MustCompile(`\b(?:write|sendto)\(\d+<UNIX-STREAM.*"HTTP/1\.1 2`)
	resumes  = regexp.MustCompile(`^(\d+)\s+<\.\.\. f(?:data)?sync resumed>.*= 0`)
)

// answeredAfterSync reads a trace: the log was written, then synced, and only
// then did the first answer leave.
func answeredAfterSync(trace string) error {
	written, synced, answers := false, false, 0
	open := map[string]bool{} // threads inside an fsync of the log, and whether it was written before
	for line := range strings.Lines(trace) {
		thread, _, _ := strings.Cut(line, " ")
		switch resumed := resumes.FindStringSubmatch(line); {
		case writeLog.MatchString(line):
			written = true
		case syncsLog.MatchString(line) && strings.Contains(line, "unfinished"):
			open[thread] = written
		case syncsLog.MatchString(line) && strings.Contains(line, "= 0"):
			synced = synced || written
		case resumed != nil && open[resumed[1]]:
			synced = true
		case replies.MatchString(line):
			answers++
			if !synced {
				return fmt.Errorf("an answer left before the first synced commit of this process:\n%s", line)
			}
		}
	}
	if answers == 0 {
		return errors.New("the trace shows no answer")
	}
	return nil
}

// TestTraceTellsAnEarlyAnswer: the check of TestPower fails where it must.
func TestTraceTellsAnEarlyAnswer(t *testing.T) {
	const (
		write   = "7 pwrite64(9</d/outbox.db-wal>, \"x\", 1, 0) = 1\n"
		synced  = "7 fsync(9</d/outbox.db-wal>) = 0\n"
		begins  = "7 fsync(9</d/outbox.db-wal> <unfinished ...>\n"
		ends    = "7 <... fsync resumed>) = 0\n"
		foreign = "7 fsync(9</d/outbox.db>) = 0\n"
		answer  = "8 write(18<UNIX-STREAM:[1->2,\"/d/s\"]>, \"HTTP/1.1 200 OK\"..., 15) = 15\n"
	)
	for trace, good := range map[string]bool{
		write + synced + answer:          true,
		write + begins + ends + answer:   true,
		write + answer + synced:          false,
		write + begins + answer + ends:   false,
		synced + write + answer:          false,
		begins + write + ends + answer:   false,
		write + foreign + answer:         false,
		write + synced:                   false,
		write + synced + answer + answer: true,
	} {
		if err := answeredAfterSync(trace); (err == nil) != good {
			t.Errorf("got %v, want good: %t, of\n%s", err, good, trace)
		}
	}
}
