package chaos_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/chaos"
)

// copied is a database with an operation of each class before its first attempt,
// and one that is dead; what was sent after the copy was made is not in it.
type copied struct {
	w    *world
	refs map[string]string // by tool
	last int64             // the largest token that was sent before the copy was put back
}

// restored puts an older copy back: with the command or, where somebody knows
// better, with a plain cp.
func restored(t *testing.T, command bool) copied {
	w := newWorld(t)
	c := copied{w: w, refs: map[string]string{}}
	lost := fmt.Sprintf(`{name: lost, effect: queryable, http: {url: %q}, timeout: 1s, query: {http: {url: "http://127.0.0.1:1/{key}"}}}`, w.url+"/queryable/fail")
	w.configure("retry: {initial: 10ms, max: 50ms, max_attempts: 1, max_queries: 1}", lost,
		w.http("idem", "idempotent", chaos.Now, ""), w.http("quer", "queryable", chaos.Now, ""),
		w.http("opaq", "opaque", chaos.Now, ""), w.http("dead", "opaque", chaos.Reject, ""))
	r := w.up()
	for _, tool := range []string{"idem", "quer", "opaq"} {
		w.mustCommand("tool", "pause", tool)
		c.refs[tool] = w.submit(tool, "key").StatusRef
	}
	c.refs["dead"] = w.submit("dead", "key").StatusRef
	w.wantStatus("the rejected one", w.settled(c.refs["dead"]), "dead", "rejected")
	c.refs["lost"] = w.submit("lost", "key").StatusRef
	w.wantStatus("one that cannot be asked about", w.settled(c.refs["lost"]), "unknown", "queries_exhausted")
	w.down(r)
	w.mustCommand("db", "backup", w.path("backup.db"))
	r = w.up()
	for _, tool := range []string{"idem", "quer", "opaq"} {
		w.mustCommand("tool", "resume", tool)
		w.wantStatus(tool, w.settled(c.refs[tool]), "succeeded", "")
	}
	for _, seen := range w.seen(chaos.Asked) {
		c.last = max(c.last, seen.Token)
	}
	w.down(r)
	if command {
		w.mustCommand("db", "restore", w.path("backup.db"))
		return c
	}
	b, err := os.ReadFile(w.path("backup.db"))
	must(t, err)
	must(t, os.WriteFile(w.path("outbox.db"), b, 0o600))
	return c
}

func (w *world) mustCommand(args ...string) {
	w.t.Helper()
	if _, errs, code := w.command(args...); code != 0 {
		w.t.Fatalf("outboxd %s exits with %d: %s", strings.Join(args, " "), code, errs)
	}
}

// TestARestoredFileIsHeldUntilItIsReleased: a copy that was put back accepts, but
// sends nothing that may have been sent since it was made, until a person says so.
func TestARestoredFileIsHeldUntilItIsReleased(t *testing.T) {
	t.Parallel()
	for _, command := range []bool{true, false} {
		t.Run(fmt.Sprintf("command %t", command), func(t *testing.T) {
			t.Parallel()
			held(t, restored(t, command))
		})
	}
}

func held(t *testing.T, c copied) {
	w := c.w
	sent, asked := len(w.seen(chaos.Asked)), len(w.seen(chaos.Question))
	r := w.up()
	for _, tool := range []string{"idem", "quer", "opaq"} {
		w.mustCommand("tool", "resume", tool)
	}
	fresh := w.submit("idem", "accepted in the hold").StatusRef
	_, err := w.client.Reconcile(w.ctx, c.refs["lost"])
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != "HELD" || p.Status != 503 {
		t.Errorf("a question by hand in the hold: %v, want HELD", err)
	}
	r.Kill() // a hold outlives its daemon
	r = w.up()
	time.Sleep(300 * time.Millisecond)
	if n, q := len(w.seen(chaos.Asked)), len(w.seen(chaos.Question)); n != sent || q != asked {
		t.Errorf("in the hold %d requests and %d questions left", n-sent, q-asked)
	}
	out, errs, code := w.command("db", "release", "-o", "json")
	if want := `"resumed":1,"asked":1,"held":2`; code != 0 || !strings.Contains(strings.ReplaceAll(strings.ReplaceAll(out, " ", ""), "\n", ""), want) {
		t.Fatalf("release exits with %d: %s%s, want %s", code, out, errs, want)
	}
	w.wantStatus("idempotent", w.settled(c.refs["idem"]), "succeeded", "")
	w.wantStatus("queryable", w.settled(c.refs["quer"]), "succeeded", "")
	w.wantStatus("opaque", w.settled(c.refs["opaq"]), "unknown", "restored")
	w.wantStatus("dead in the copy", w.settled(c.refs["dead"]), "unknown", "restored")
	w.wantStatus("accepted in the hold", w.settled(fresh), "succeeded", "")
	for tool, requests := range map[string]int{"idem": 2, "quer": 1, "opaq": 1, "dead": 1, "lost": 1} {
		equal(t, tool+": requests", w.of(chaos.Asked, c.refs[tool]), requests)
	}
	equal(t, "effects of the queryable one", w.of(chaos.Effect, c.refs["quer"]), 1)
	for _, seen := range w.seen(chaos.Asked)[sent:] {
		if seen.Token <= c.last {
			t.Errorf("token %d left after the restore, %d had left before", seen.Token, c.last)
		}
	}
	if out, _, code := w.command("db", "release", "-o", "json"); code != 0 || !strings.Contains(out, "false") {
		t.Errorf("a second release exits with %d: %s", code, out)
	}
	w.down(r)
}

// TestAFileThatIsNotOlderIsNotHeld: neither a kill nor a stop makes the next start
// take a good file for an older copy.
func TestAFileThatIsNotOlderIsNotHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure("", w.http("idem", "idempotent", chaos.Now, ""))
	for i := range 6 {
		r := w.up()
		w.wantStatus("sent", w.settled(w.submit("idem", fmt.Sprint("key-", i)).StatusRef), "succeeded", "")
		if i%2 == 0 {
			r.Kill()
		} else {
			r.Signal(syscall.SIGTERM)
			equal(t, "exit", w.exit(r.Process), 0)
		}
	}
	equal(t, "holds", w.count(`SELECT count(*) FROM outbox_meta WHERE restored_at IS NOT NULL`), 0)
}
