package chaos_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxd/outboxd/chaos"
)

// twenty submits ten operations for an http tool and ten for a program, and
// waits until all of them run.
func (w *world) twenty() (refs []string) {
	w.t.Helper()
	for i := range 10 {
		for _, tool := range []string{"web", "prog"} {
			refs = append(refs, w.submit(tool, fmt.Sprint("key-", i)).StatusRef)
		}
	}
	w.until("all twenty run", func() bool { return len(w.seen(chaos.Asked)) == 10 && len(w.lines()) == 10 })
	return refs
}

// TestDrain: SIGTERM while twenty handlers run. All of them are waited for and
// recorded, and nothing is sent again after the next start.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure("worker: {drain_timeout: 30s}",
		w.http("web", "opaque", "slow-2s", ""), w.shell("prog", "opaque", appendKey+"sleep 2; echo '{\"n\":1}'", ""))
	r := w.up()
	refs := w.twenty()
	w.down(r)
	equal(t, "deliveries recorded before the exit", w.count(`SELECT count(*) FROM outbox_receipt`), 20)
	r = w.up()
	for _, ref := range refs {
		a := w.settled(ref)
		w.wantStatus(a.Tool, a, "succeeded", "")
		equal(t, "attempts", a.Attempts, 1)
	}
	equal(t, "requests", len(w.seen(chaos.Asked)), 10)
	equal(t, "lines", len(w.lines()), 10)
	w.down(r)
}

// TestDrainLimit: what is still running at the limit, or when a second signal
// comes, is ended and recorded as what it is; the daemon says so with exit 3.
func TestDrainLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		limit   string
		signals []syscall.Signal
	}{
		{"limit", "1s", []syscall.Signal{syscall.SIGTERM}},
		{"second signal", "10m", []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}},
		{"interrupt after it", "10m", []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.configure("worker: {drain_timeout: "+c.limit+"}\nretry: {initial: 10ms}",
				w.http("web", "idempotent", "slow-60s", "timeout: 90s"), w.shell("prog", "opaque", appendKey+"sleep 60", "timeout: 90s"))
			r := w.up()
			refs := w.twenty()
			began := time.Now()
			for i, s := range c.signals {
				if i > 0 {
					w.until("it drains", func() bool { return strings.Contains(tail(w.daemon.Log, 5), `"draining"`) })
				}
				r.Signal(s)
			}
			equal(t, "exit", w.exit(r.Process), 3)
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("it took %s", took)
			}
			w.audit()
			equal(t, "entries still held", w.count(`SELECT count(*) FROM outbox_entry WHERE token IS NOT NULL`), 0)
			equal(t, "lapses", w.count(`SELECT COALESCE(sum(lapses + suspect), 0) FROM outbox_entry`), 0)
			equal(t, "failures", w.count(`SELECT sum(failures) FROM outbox_entry`), 0)
			r = w.up()
			for i, ref := range refs {
				if i%2 == 0 {
					w.wantStatus("web", w.settled(ref), "succeeded", "")
					equal(t, "effects", w.of(chaos.Effect, ref), 1)
				} else {
					w.wantStatus("prog", w.settled(ref), "unknown", "unproven")
				}
			}
			equal(t, "lines", len(w.lines()), 10)
			w.down(r)
		})
	}
}

// TestStopAtTheLimit: handlers answer at 95 to 105 % of their time limit, and a
// SIGTERM comes at that moment. What took effect is delivered or unknown.
func TestStopAtTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure("worker: {concurrency: 200, per_tool: 200}", w.http("edge", "opaque", "edge-500ms", "timeout: 500ms"))
	r := w.up()
	for i := range 200 {
		w.submit("edge", fmt.Sprint("key-", i))
	}
	w.until("most of them run", func() bool { return len(w.seen(chaos.Asked)) > 150 })
	time.Sleep(300 * time.Millisecond)
	w.down(r)
	sent := len(w.seen(chaos.Asked))
	delivered := w.count(`SELECT count(*) FROM outbox_entry WHERE state = 'delivered'`)
	unknown := w.count(`SELECT count(*) FROM outbox_entry WHERE state = 'unknown' AND due_at IS NULL AND reason = 'unproven'`)
	pending := w.count(`SELECT count(*) FROM outbox_entry WHERE state = 'pending' AND unproven_since IS NULL`)
	t.Logf("%d delivered, %d unknown, %d not begun", delivered, unknown, pending)
	equal(t, "delivered and unknown", delivered+unknown, sent)
	equal(t, "all", delivered+unknown+pending, 200)
	r = w.up()
	w.until("the rest is done", func() bool {
		return w.metric(r, `outboxd_entries{state="pending"}`)+w.metric(r, `outboxd_entries{state="sending"}`) == 0
	})
	equal(t, "requests", len(w.seen(chaos.Asked)), 200)
	w.down(r)
}

// TestSecondDaemon: it is refused at once, naming the first, which goes on.
func TestSecondDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tool := w.http("idem", "idempotent", chaos.Now, "")
	w.configure("", tool)
	r := w.up()
	second := w.daemon
	second.Config, second.Socket, second.Log = w.path("second.yaml"), w.path("second"), w.path("second.log")
	w.write(second.Config, second.Socket, "", tool)
	for _, d := range []chaos.Daemon{w.daemon, second} {
		d.Log = second.Log
		began := time.Now()
		p, err := d.Start()
		must(t, err)
		t.Cleanup(p.Kill)
		equal(t, "exit", w.exit(p.Process), 2)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %s to see that it is the second", took)
		}
		said := tail(d.Log, 1)
		if !strings.Contains(said, "ALREADY_RUNNING") || !strings.Contains(said, fmt.Sprint(r.PID())) {
			t.Errorf("it says %q, want ALREADY_RUNNING and process %d", said, r.PID())
		}
	}
	w.wantStatus("the first one works", w.settled(w.submit("idem", "key").StatusRef), "succeeded", "")
	w.down(r)
}
