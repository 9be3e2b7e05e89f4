package chaos_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/chaos"
)

// dead makes n operations that the downstream took nothing of.
func (w *world) dead(tool string, n int) {
	w.t.Helper()
	db := w.open()
	_, err := db.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)
		SELECT 'acme', 'shop', ?, 'order-' || i, '{}' FROM n`, n, tool)
	must(w.t, err)
	for end := time.Now().Add(5 * time.Minute); ; {
		var dead int
		must(w.t, db.QueryRow(`SELECT count(*) FROM outbox_entry WHERE state = 'dead'`).Scan(&dead))
		if dead == n {
			break
		}
		if time.Now().After(end) {
			w.t.Fatalf("%d of %d are dead", dead, n)
		}
		time.Sleep(20 * time.Millisecond)
	}
	must(w.t, db.Close())
}

// load is normal work and a writing application, until stop is called.
type load struct {
	w      *world
	tool   string
	ends   chan struct{}
	all    sync.WaitGroup
	normal []time.Duration // from submit to delivered
	writes []time.Duration // of the application's transactions
	locked int
}

func (w *world) begin(name, tool string) *load {
	l := &load{w: w, tool: tool, ends: make(chan struct{})}
	db := w.open()
	_, err := db.Exec(`CREATE TABLE IF NOT EXISTS shop_order (id INTEGER PRIMARY KEY, note TEXT)`)
	must(w.t, err)
	l.all.Go(func() {
		for i := 0; !l.ended(); i++ {
			began := time.Now()
			a, err := w.client.Submit(w.ctx, body(tool, fmt.Sprintf("%s-%d", name, i), "{}"), patience)
			if err == nil && a.Status == "succeeded" { // else the daemon was just killed
				l.normal = append(l.normal, time.Since(began))
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	l.all.Go(func() {
		for !l.ended() {
			began := time.Now()
			if err := write(db); err != nil {
				l.locked++
				w.t.Logf("the application: %v", err)
			}
			l.writes = append(l.writes, time.Since(began))
			time.Sleep(2 * time.Millisecond)
		}
	})
	return l
}

func write(db *sql.DB) error {
	for _, statement := range []string{`BEGIN IMMEDIATE`, `INSERT INTO shop_order (note) VALUES ('a')`, `COMMIT`} {
		if _, err := db.Exec(statement); err != nil {
			_, rollback := db.Exec(`ROLLBACK`)
			return errors.Join(err, rollback)
		}
	}
	return nil
}

func (l *load) ended() bool {
	select {
	case <-l.ends:
		return true
	default:
		return false
	}
}

func (l *load) stop() *load {
	close(l.ends)
	l.all.Wait()
	l.w.t.Logf("%s: %d operations: %s; %d transactions of the application: %s", l.tool, len(l.normal), spread(l.normal),
		len(l.writes), spread(l.writes))
	return l
}

// reviewed runs a review on the command line and returns its counts.
func (w *world) reviewed(want int, args ...string) (r api.ReviewResult) {
	w.t.Helper()
	out, errs, code := w.command(append([]string{"dead"}, args...)...)
	if code != want {
		w.t.Fatalf("outboxd dead %s exits with %d, want %d\n%s%s", strings.Join(args, " "), code, want, out, errs)
	}
	if want == 0 {
		must(w.t, json.Unmarshal([]byte(out), &r))
	}
	return r
}

// TestReviewOfManyDeadLetters: dead letters of one tool are grouped, counted and
// brought back, by a command that is cut short by a kill of the daemon and given
// again. Each of them begins one new round. Meanwhile normal operations keep their
// latency, and no transaction of the application waits for long.
func TestReviewOfManyDeadLetters(t *testing.T) {
	letters, first, pace := 1500, 100, "300"
	if full {
		letters, first, pace = 20_000, 500, "300"
	}
	w := newWorld(t)
	w.configure("retry: {max_attempts: 1}\nlease: {ttl: 2s}", w.http("ship", "idempotent", chaos.Busy, ""), w.http("mail", "idempotent", chaos.Now, ""))
	r := w.up()
	w.dead("ship", letters)

	calm := w.begin("calm", "mail")
	time.Sleep(2 * time.Second)
	calm.stop()
	out, _, _ := w.command("dead", "list", "--group")
	if !strings.Contains(out, fmt.Sprintf(`"dead":%d,`, letters)) || strings.Count(out, "fingerprint") != 1 {
		t.Errorf("groups: got %s, want one of %d", out, letters)
	}
	busy := w.begin("busy", "mail")
	all := []string{"retry", "--tool", "ship", "--reason", "the carrier is back", "--per-second", pace}
	equal(t, "counted", w.reviewed(0, append(all, "--dry-run")...).Done, letters)
	equal(t, "reviews after a dry run", w.count(`SELECT count(*) FROM outbox_review`), 0)
	equal(t, "the first", w.reviewed(0, append(all, "--limit", fmt.Sprint(first))...).Done, first)

	cut := make(chan struct{})
	go func() {
		defer close(cut)
		_, _, code := w.command(append([]string{"dead"}, all...)...)
		t.Logf("the command ended with %d when the daemon was killed", code)
	}()
	w.until("a third is reviewed", func() bool { return w.count(`SELECT count(*) FROM outbox_review`) > letters/3 })
	r.Kill()
	<-cut
	half := w.count(`SELECT count(*) FROM outbox_review`)
	r = w.up()
	rest := w.reviewed(0, all...)
	equal(t, "reviewed before and after the kill", half+rest.Done, letters)
	equal(t, "reviews", w.count(`SELECT count(*) FROM outbox_review`), letters)
	equal(t, "reviewed twice", w.count(`SELECT count(*) FROM outbox_entry WHERE tool_name = 'ship' AND round <> 2`), 0)
	began := time.Now()
	for w.count(`SELECT count(*) FROM outbox_entry WHERE tool_name = 'ship' AND state <> 'delivered'`) > 0 {
		if time.Since(began) > 5*time.Minute {
			t.Fatal("the new rounds do not end")
		}
		time.Sleep(100 * time.Millisecond)
	}
	busy.stop()
	if calm, busy := median(calm.normal), median(busy.normal); busy > 2*calm && (full || busy > 50*time.Millisecond) {
		t.Errorf("median of normal operations: %s, %s before", busy, calm)
	}
	if worst := busy.writes[len(busy.writes)-1]; worst > time.Second || busy.locked > 0 {
		t.Errorf("the application waited %s, and failed %d times", worst, busy.locked)
	}
	if again := len(w.receivedAt("/idempotent/busy")) - 2*letters; again > 64 {
		t.Errorf("%d requests more than two for each", again)
	}
	w.down(r)
}

// receivedAt is what the witness got at a path.
func (w *world) receivedAt(path string) (list []chaos.Record) {
	for _, r := range w.seen(chaos.Asked) {
		if r.Tool == path {
			list = append(list, r)
		}
	}
	return list
}

// TestReviewsRaceFromTheCommandLineAndTheAPI: of decisions about one entry that
// come at once from commands and from callers of the API, one is carried out.
func TestReviewsRaceFromTheCommandLineAndTheAPI(t *testing.T) {
	rounds := 10
	if full {
		rounds = 200
	}
	w := newWorld(t)
	w.configure("retry: {max_attempts: 1}", w.http("ship", "opaque", chaos.Fail, "timeout: 1s"))
	r := w.up()
	yes := true
	for n := range rounds {
		ref := w.submit("ship", fmt.Sprintf("order-%d", n)).StatusRef
		w.settled(ref)
		if _, err := w.client.Pause(w.ctx, "ship", "no second effect"); err != nil {
			t.Fatal(err)
		}
		byAPI := func(b api.Review) bool {
			b.Refs, b.Reason = []string{ref}, "a race"
			_, err := w.client.Review(w.ctx, b)
			if p, ok := errors.AsType[*api.Problem](err); err != nil && (!ok || p.Status != 409 || p.State == "") {
				t.Errorf("round %d: got %v, want 409 with the state", n, err)
			}
			return err == nil
		}
		byCommand := func(args ...string) bool {
			out, errs, code := w.command(append(append([]string{"dead"}, args...), "--reason", "a race")...)
			if code > 1 || code == 1 && !strings.Contains(out, `"status":`) {
				t.Errorf("round %d: %v exits with %d: %s%s", n, args, code, out, errs)
			}
			return code == 0
		}
		deeds := []func() bool{
			func() bool { return byCommand("retry", ref, "--accept-duplicate-risk") },
			func() bool { return byCommand("discard", ref) },
			func() bool { return byCommand("resolve", ref, "--applied", "--evidence", "1") },
			func() bool { return byAPI(api.Review{Action: "retry", AcceptDuplicateRisk: true}) },
			func() bool { return byAPI(api.Review{Action: "discard"}) },
			func() bool { return byAPI(api.Review{Action: "resolve", Applied: &yes, Proof: []byte("1")}) },
		}
		won := make([]bool, len(deeds))
		var all sync.WaitGroup
		for i, deed := range deeds {
			all.Go(func() { won[i] = deed() })
		}
		all.Wait()
		winners := 0
		for _, yes := range won {
			if yes {
				winners++
			}
		}
		reviews := w.count(`SELECT count(*) FROM outbox_review r JOIN outbox_operation o ON o.id = r.operation_id WHERE o.status_ref = ?`, ref)
		if winners != 1 || reviews != 1 {
			t.Fatalf("round %d: %d winners, %d reviews, want one of each", n, winners, reviews)
		}
		if _, err := w.client.Cancel(w.ctx, ref, "the race is over", ""); err == nil {
			t.Logf("round %d: a retry won", n)
		}
		if _, err := w.client.Resume(w.ctx, "ship"); err != nil {
			t.Fatal(err)
		}
	}
	w.down(r)
}
