package chaos_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outboxd/outboxd/chaos"
)

// inFlight is how many requests are on their way when the daemon of a backlog is
// killed.
const inFlight = 64

// firstRequest is how long it may take from a SIGKILL to the next daemon's first
// request, however much waits.
const firstRequest = time.Second

// TestFirstRequestAfterAKill: what waits does not make a start slow. The best of
// three counts: other tests have the processors too.
func TestFirstRequestAfterAKill(t *testing.T) {
	pending := 5_000
	if full {
		pending = 100_000
	}
	w := newWorld(t)
	w.configure(fmt.Sprintf("worker: {concurrency: %d, per_tool: %d}", inFlight, inFlight), w.http("idem", "idempotent", "steady-60s", "timeout: 90s"))
	r := w.up()
	w.backlog(pending)
	var took []time.Duration
	for i := range 3 {
		w.until("as many as can are on their way", func() bool { return len(w.seen(chaos.Asked)) == (i+1)*inFlight })
		killed := time.Now()
		r.Kill()
		r = w.up()
		w.until("a request of the next daemon", func() bool { return len(w.seen(chaos.Asked)) > (i+1)*inFlight })
		took = append(took, w.seen(chaos.Asked)[(i+1)*inFlight].Time().Sub(killed))
	}
	t.Logf("%d pending, %d in flight: the first request left %v after the SIGKILL", pending, inFlight, took)
	figure("backlog", fmt.Sprintf("ms from SIGKILL to the first request with %d pending", pending), int(slices.Min(took).Milliseconds()))
	if best := slices.Min(took); best > firstRequest {
		t.Errorf("the first request left %s after the SIGKILL, want %s", best, firstRequest)
	}
	equal(t, "what waits is still there", w.count(`SELECT count(*) FROM outbox_entry WHERE state <> 'delivered'`), pending)
	r.Kill()
	w.audit()
}

// backlog gives the daemon so many operations, and waits until it has accepted
// them.
func (w *world) backlog(n int) {
	w.t.Helper()
	const chunk = 2000
	for from := 0; from < n; from += chunk {
		db := w.open()
		_, err := db.Exec(`INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)
			WITH RECURSIVE n(i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
			SELECT 'acme', 'test', 'idem', 'key-' || i, '{}' FROM n`, from, min(from+chunk, n))
		must(w.t, err)
		must(w.t, db.Close())
	}
	w.until("all of them are accepted", func() bool { return w.count(`SELECT count(*) FROM outbox_entry`) == n })
}
