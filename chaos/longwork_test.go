package chaos_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outboxd/outboxd/chaos"
)

const appendKey = `echo "$OUTBOX_KEY" >> "$OUT"; `

// TestLongWork: a program that runs for ten leases runs once.
func TestLongWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure("lease: {ttl: 1s}", w.shell("long", "opaque", appendKey+"sleep 10", "timeout: 60s"))
	r := w.up()
	a := w.settled(w.submit("long", "key").StatusRef)
	w.wantStatus("long work", a, "succeeded", "")
	equal(t, "attempts", a.Attempts, 1)
	equal(t, "lines", len(w.lines()), 1)
	w.down(r)
}

// TestKilledInLongWork: what a program began and a killed daemon did not see the
// end of is never run again by itself.
func TestKilledInLongWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure("", w.shell("long", "opaque", appendKey+"exec sleep 60", "timeout: 90s"))
	r := w.up()
	ref := w.submit("long", "key").StatusRef
	w.until("it runs", func() bool { return len(w.lines()) == 1 })
	r.Kill()
	began := time.Now()
	r = w.up()
	w.wantStatus("after the restart", w.settled(ref), "unknown", "lapsed")
	t.Logf("known to be unknown %s after the restart, with a lease of 30s", time.Since(began).Round(time.Millisecond))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("recovery took %s", took)
	}
	out, _, code := w.command("reconcile", ref)
	equal(t, "exit of reconcile, which has nobody to ask", code, 1)
	w.wantStatus("reconcile", answer(t, out), "unknown", "lapsed")
	equal(t, "lines", len(w.lines()), 1)
	w.down(r)
}

// TestRunningForEver: ten attempts of a killed daemon go on as their class says:
// at once where the lock proves that it is dead, else when the lease is over.
func TestRunningForEver(t *testing.T) {
	t.Parallel()
	for _, exclusive := range []bool{true, false} {
		t.Run(fmt.Sprintf("exclusive %t", exclusive), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			lease := "lease: {ttl: 30s}"
			if !exclusive {
				lease = "lease: {ttl: 2s}"
			}
			w.configure(fmt.Sprintf("worker: {exclusive: %t}\n%s\nretry: {initial: 10ms}", exclusive, lease),
				w.http("idem", "idempotent", "slow-60s", "timeout: 90s"), w.http("quer", "queryable", "slow-60s", "timeout: 90s"),
				w.http("opaq", "opaque", "slow-60s", "timeout: 90s"))
			r := w.up()
			refs := map[string]string{}
			for i := range 10 {
				tool := []string{"idem", "quer", "opaq"}[i%3]
				refs[w.submit(tool, fmt.Sprint("key-", i)).StatusRef] = tool
			}
			w.until("all run", func() bool { return len(w.seen(chaos.Asked)) == 10 })
			r.Kill()
			began := time.Now()
			r = w.up()
			for ref, tool := range refs {
				a := w.settled(ref)
				if tool == "opaq" {
					w.wantStatus(tool, a, "unknown", "lapsed")
				} else {
					w.wantStatus(tool, a, "succeeded", "")
				}
				equal(t, tool+": effects", w.of(chaos.Effect, ref), 1)
			}
			t.Logf("all settled %s after the restart", time.Since(began).Round(time.Millisecond))
			w.down(r)
		})
	}
}
