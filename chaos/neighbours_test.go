package chaos_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outboxd/outboxd/chaos"
)

// TestDeadDestination: a backlog for a destination that never answers does not
// delay the others.
func TestDeadDestination(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure("worker: {concurrency: 8, drain_timeout: 100ms}\nretry: {initial: 1s}",
		w.http("dead", "idempotent", chaos.Silent, "timeout: 10s"), w.http("good", "idempotent", chaos.Now, ""))
	r := w.up()
	for i := range 300 {
		w.submit("dead", fmt.Sprint("key-", i))
	}
	began := time.Now()
	for i := range 10 {
		w.wantStatus("a healthy destination", w.settled(w.submit("good", fmt.Sprint("key-", i)).StatusRef), "succeeded", "")
	}
	took := time.Since(began)
	t.Logf("ten to a healthy destination took %s beside a dead one", took.Round(time.Millisecond))
	if took > 5*time.Second {
		t.Errorf("ten to a healthy destination took %s", took)
	}
	r.Kill()
	w.audit()
}

// TestBulkWriters: programs that write much and all the time neither starve the
// heartbeats nor are starved.
func TestBulkWriters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure("lease: {ttl: 3s}\nworker: {concurrency: 64}",
		w.http("idem", "idempotent", "slow-5s", ""), w.http("opaq", "opaque", "slow-5s", ""))
	r := w.up()
	var refs []string
	for i := range 10 {
		for _, tool := range []string{"idem", "opaq"} {
			refs = append(refs, w.submit(tool, fmt.Sprint("key-", i)).StatusRef)
		}
	}
	w.until("all run", func() bool { return len(w.seen(chaos.Asked)) == len(refs) })
	var writers errgroup.Group
	written := make([]int, 4)
	for i := range written {
		db := w.open()
		_, err := db.Exec(`PRAGMA busy_timeout = 60000`) // they starve each other
		must(t, err)
		writers.Go(func() error {
			for end := time.Now().Add(5 * time.Second); time.Now().Before(end); written[i]++ {
				if err := bulk(db, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, ref := range refs {
		w.onceDelivered(ref)
	}
	if err := writers.Wait(); err != nil {
		t.Errorf("a bulk writer failed: %v", err)
	}
	t.Logf("transactions of 5 MB by each writer: %v; %g of %g renewals failed", written,
		w.metric(r, "outboxd_heartbeat_failures_total"), w.metric(r, "outboxd_heartbeat_lag_seconds_count"))
	w.down(r)
}

// bulk is one transaction of 5 MB.
func bulk(db *sql.DB, n int) error {
	_, err := db.Exec(fmt.Sprintf(`BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS bulk_%d (x);
		DELETE FROM bulk_%[1]d; INSERT INTO bulk_%[1]d SELECT zeroblob(1 << 20) FROM
		(VALUES (1), (2), (3), (4), (5)); COMMIT`, n))
	if err != nil {
		_, _ = db.Exec(`ROLLBACK`) // there may be none
	}
	return err
}
