package chaos_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxd/outboxd/chaos"
)

const shortLease = "\nlease: {ttl: 1s, heartbeat: 300ms}\nretry: {initial: 10ms, max: 100ms}\n"

// stopWith submits one operation for each tool, waits until the witness has
// them all, and stops the daemon: their answers come while it sleeps.
func (w *world) stopWith(r *chaos.Running, tools ...string) (refs []string) {
	w.t.Helper()
	for _, tool := range tools {
		refs = append(refs, w.submit(tool, "key").StatusRef)
	}
	w.until("the requests arrive", func() bool { return len(w.seen(chaos.Asked)) == len(tools) })
	r.Signal(syscall.SIGSTOP)
	return refs
}

// TestZombie: a daemon that was stopped past its leases finds that another one
// has taken its work over. Its late successes change nothing and are kept as
// evidence, except where nobody else knows better.
func TestZombie(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sections := "worker: {exclusive: false, poll_interval: 100ms}" + shortLease
	tools := []string{w.http("idem", "idempotent", "slow-300ms", "timeout: 10s"), w.http("quer", "queryable", "slow-300ms", "timeout: 10s"),
		w.http("opaq", "opaque", "slow-300ms", "timeout: 10s")}
	w.configure(sections, tools...)
	other := w.daemon
	other.Config, other.Socket = w.path("other.yaml"), w.path("o")
	w.write(other.Config, other.Socket, sections, tools...)

	first := w.up()
	refs := w.stopWith(first, "idem", "quer", "opaq")
	second := w.upWith(other)
	w.client = other.Client()
	for i, want := range []struct{ status, reason string }{{"succeeded", ""}, {"succeeded", ""}, {"unknown", "lapsed"}} {
		w.wantStatus("taken over", w.settled(refs[i]), want.status, want.reason)
	}
	equal(t, "late evidence while the first one sleeps", w.evidence(refs[0], "late"), 0)

	first.Signal(syscall.SIGCONT)
	w.until("the first one settles", func() bool {
		return w.evidence(refs[0], "late") == 1 && w.evidence(refs[1], "late") == 1
	})
	equal(t, "refused settles", w.metric(first, "outboxd_stale_settles_total"), 2.0)
	w.until("the late success of the opaque one is believed", func() bool { return w.settled(refs[2]).Status == "succeeded" })
	for i, requests := range []int{2, 1, 1} {
		equal(t, "requests", w.of(chaos.Asked, refs[i]), requests)
		equal(t, "effects", w.of(chaos.Effect, refs[i]), 1)
		w.wantStatus("in the end", w.settled(refs[i]), "succeeded", "")
	}
	if n := w.of(chaos.Question, refs[1]); n == 0 {
		t.Error("the second one delivered the queryable operation without a question")
	}
	w.rising()
	first.Signal(syscall.SIGTERM)
	equal(t, "exit of the first", w.exit(first.Process), 0)
	w.down(second)
}

// TestZombieBesideItsSuccessor: it wakes while the other one's request is still
// on its way. Only the token tells whose the entry is.
func TestZombieBesideItsSuccessor(t *testing.T) {
	t.Parallel()
	for _, behaviour := range []chaos.Behaviour{"steady-2s", "balk-2s"} {
		t.Run(string(behaviour), func(t *testing.T) {
			t.Parallel()
			zombieBesideItsSuccessor(t, behaviour)
		})
	}
}

func zombieBesideItsSuccessor(t *testing.T, behaviour chaos.Behaviour) {
	w := newWorld(t)
	sections := "worker: {exclusive: false, poll_interval: 100ms}" + shortLease
	tool := w.http("idem", "idempotent", behaviour, "timeout: 10s")
	w.configure(sections, tool)
	other := w.daemon
	other.Config, other.Socket = w.path("other.yaml"), w.path("o")
	w.write(other.Config, other.Socket, sections, tool)

	first := w.up()
	ref := w.stopWith(first, "idem")[0]
	answered := w.seen(chaos.Asked)[0].Time().Add(2100 * time.Millisecond)
	second := w.upWith(other)
	w.client = other.Client()
	w.until("the second one sends", func() bool { return len(w.seen(chaos.Asked)) == 2 })
	time.Sleep(time.Until(answered)) // its answer waits for the first one
	first.Signal(syscall.SIGCONT)
	w.until("the first one settles", func() bool { return w.evidence(ref, "late") == 1 })
	a, err := w.client.Status(w.ctx, ref, 0)
	must(t, err)
	w.wantStatus("while the second one works", a, "in_progress", "")
	equal(t, "refused settles", w.metric(first, "outboxd_stale_settles_total"), 1.0)
	w.wantStatus("in the end", w.settled(ref), "succeeded", "")
	equal(t, "effects", w.of(chaos.Effect, ref), 1)
	equal(t, "late evidence", w.evidence(ref, "late"), 1)
	w.rising()
	first.Signal(syscall.SIGTERM)
	equal(t, "exit of the first", w.exit(first.Process), 0)
	w.down(second)
	equal(t, "receipts of the second one's attempt", w.count(`SELECT count(*) FROM outbox_receipt WHERE attempt = 2`), 1)
}

// rising: later attempts of a key came with higher tokens.
func (w *world) rising() {
	w.t.Helper()
	last := map[string]chaos.Record{}
	for _, r := range w.seen(chaos.Asked) {
		if old, ok := last[r.Key]; ok && r.Token <= old.Token {
			w.t.Errorf("token %d came after %d", r.Token, old.Token)
		}
		last[r.Key] = r
	}
}

// TestStoppedAlone: the only daemon sleeps for three leases. Nobody took its work
// over, so all of it is settled and nothing is sent again.
func TestStoppedAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure(shortLease, w.http("idem", "idempotent", "slow-300ms", ""), w.http("quer", "queryable", "slow-300ms", ""),
		w.http("opaq", "opaque", "slow-4s", ""))
	r := w.up()
	refs := w.stopWith(r, "idem", "quer", "opaq")
	time.Sleep(3 * time.Second)
	r.Signal(syscall.SIGCONT)
	for _, ref := range refs {
		w.onceDelivered(ref)
	}
	w.down(r)
}

// onceDelivered: by its first and only attempt.
func (w *world) onceDelivered(ref string) {
	w.t.Helper()
	a := w.settled(ref)
	w.wantStatus(a.Tool, a, "succeeded", "")
	equal(w.t, "attempts", a.Attempts, 1)
	equal(w.t, "requests", w.of(chaos.Asked, ref), 1)
	equal(w.t, "effects", w.of(chaos.Effect, ref), 1)
	equal(w.t, "lapses", w.evidence(ref, "lapse"), 0)
}

// TestLockedElsewhere: somebody holds the write lock for three leases while work
// runs. It says so, does nothing twice, and records every outcome afterwards.
func TestLockedElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure(shortLease, w.http("idem", "idempotent", "slow-500ms", ""), w.http("opaq", "opaque", "slow-500ms", ""))
	r := w.up()
	var refs []string
	for _, key := range strings.Fields("a b c d e") {
		for _, tool := range []string{"idem", "opaq"} {
			refs = append(refs, w.submit(tool, key).StatusRef)
		}
	}
	w.until("the requests arrive", func() bool { return len(w.seen(chaos.Asked)) == len(refs) })
	release := w.lock("BEGIN IMMEDIATE")
	until := time.Now().Add(3 * time.Second)
	w.until("it says that it is not ready", func() bool { return !r.Ready(w.ctx) })
	if n := w.metric(r, "outboxd_database_busy_seconds"); n <= 0 {
		t.Errorf("busy for %g s, want more", n)
	}
	time.Sleep(time.Until(until))
	for _, ref := range refs {
		a, err := w.client.Status(w.ctx, ref, 0)
		must(t, err)
		w.wantStatus("while it is locked", a, "in_progress", "")
	}
	release()
	for _, ref := range refs {
		w.onceDelivered(ref)
	}
	w.until("it is ready again", func() bool { return r.Ready(w.ctx) })
	w.down(r)
}

// TestStartWhileLocked: a start and a command during somebody else's write wait
// for it.
func TestStartWhileLocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure("", w.http("idem", "idempotent", chaos.Now, ""))
	w.down(w.up())
	release := w.lock("BEGIN EXCLUSIVE")
	timer := time.AfterFunc(2*time.Second, release)
	defer timer.Stop()
	began := time.Now()
	_, errs, code := w.command("list")
	if code != 0 {
		t.Errorf("list exits with %d: %s", code, errs)
	}
	r := w.up()
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("it was up after %s, while the file was locked", took)
	}
	w.down(r)
}
