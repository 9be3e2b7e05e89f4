package chaos_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/chaos"
)

const createJob = `{name: create_job, sql: {statements: ["INSERT INTO job (tenant, ref, title) VALUES (:tenant, :status_ref, :title) RETURNING id AS job_id, title"]}}`

// jobs is the application's table in the daemon's file.
func (w *world) jobs(create *chaos.Daemon) *sql.DB {
	w.t.Helper()
	w.down(w.upWith(*create))
	db := w.open()
	_, err := db.Exec(`CREATE TABLE job (id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, ref TEXT NOT NULL, title TEXT NOT NULL)`)
	must(w.t, err)
	return db
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	must(t, db.QueryRow(query).Scan(&n))
	return n
}

// TestIdempotentJobCreator: the eight checks of a job that is created in the same
// file, against the real daemon.
func TestIdempotentJobCreator(t *testing.T) {
	w := newWorld(t)
	w.configure(`retry: {initial: 10ms, max: 100ms, max_lapses: 100}`, createJob)
	breakable := w.daemon
	breakable.Args = append(slices.Clone(breakable.Args), "--chaos-create")
	db := w.jobs(&breakable)
	r := w.up()
	create := func(tenant, key, title string) (api.Answer, error) {
		b := body("create_job", key, fmt.Sprintf(`{"title":%q}`, title))
		b.Principal.Tenant = tenant
		return w.client.Submit(w.ctx, b, patience)
	}
	want := func(what string, jobs int, a api.Answer, err error, result string) {
		t.Helper()
		if n := count(t, db, `SELECT count(*) FROM job`); n != jobs || err != nil || a.Status != "succeeded" || string(a.Result) != result {
			t.Errorf("%s: got %d jobs, %s %s, %v, want %d and %s", what, n, a.Status, a.Result, err, jobs, result)
		}
	}
	first, err := create("team-A", "op-1", "report")
	want("first call", 1, first, err, `{"job_id":1,"title":"report"}`)
	again, err := w.daemon.Client().Submit(w.ctx, caseOf("team-A", "op-1", "report"), patience)
	want("retry through a new connection", 1, again, err, `{"job_id":1,"title":"report"}`)
	if again.StatusRef != first.StatusRef {
		t.Errorf("the retry is another operation")
	}
	_, err = create("team-A", "op-1", "changed")
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != "IDEMPOTENCY_CONFLICT" || !slices.Equal(p.Fields, []string{"arguments"}) {
		t.Errorf("same key with other arguments: got %v, want a conflict", err)
	}
	equal(t, "jobs after the conflict", count(t, db, `SELECT count(*) FROM job`), 1)

	// The daemon dies before the commit that holds the effect and the receipt.
	w.down(r)
	r = w.upWith(w.daemon.Armed("settle.before=kill"))
	_, err = create("team-A", "op-2", "second")
	equal(t, "the daemon was killed", w.died(r), syscall.SIGKILL)
	equal(t, "jobs and receipts before the commit", count(t, db, `SELECT (SELECT count(*) FROM job) * 10 + (SELECT count(*) FROM outbox_receipt)`), 11)
	r = w.up()
	second, err2 := create("team-A", "op-2", "second")
	want("retry after the rollback", 2, second, err2, `{"job_id":2,"title":"second"}`)

	// It dies after the commit, before anybody is answered.
	w.down(r)
	r = w.upWith(w.daemon.Armed("settle.after=kill"))
	_, _ = create("team-A", "op-3", "third")
	equal(t, "the daemon was killed", w.died(r), syscall.SIGKILL)
	equal(t, "jobs and receipts after the commit", count(t, db, `SELECT (SELECT count(*) FROM job) * 10 + (SELECT count(*) FROM outbox_receipt)`), 33)
	r = w.up()
	third, err3 := create("team-A", "op-3", "third")
	want("lost acknowledgement", 3, third, err3, `{"job_id":3,"title":"third"}`)
	if err == nil {
		t.Error("a submit was answered by a daemon that had died")
	}

	other, err := create("team-B", "op-1", "report")
	want("separate tenant", 4, other, err, `{"job_id":4,"title":"report"}`)
	var both [2]api.Answer
	var errs [2]error
	var clients sync.WaitGroup
	for i := range both {
		clients.Go(func() { both[i], errs[i] = w.daemon.Client().Submit(w.ctx, caseOf("team-A", "op-4", "both"), patience) })
	}
	clients.Wait()
	for i := range both {
		want("two at once", 5, both[i], errs[i], `{"job_id":5,"title":"both"}`)
	}
	equal(t, "operations of two at once", both[0].StatusRef, both[1].StatusRef)
	w.down(r)
	w.audit()
}

func caseOf(tenant, key, title string) api.Case {
	b := body("create_job", key, fmt.Sprintf(`{"title":%q}`, title))
	b.Principal.Tenant = tenant
	return b
}

// died waits for the end of a daemon and says of which signal.
func (w *world) died(r *chaos.Running) syscall.Signal {
	w.t.Helper()
	select {
	case <-r.Ended():
	case <-time.After(patience):
		w.t.Fatal("the daemon lives")
	}
	return r.Signalled()
}

// TestLocalEffectsUnderKills: however often the daemon dies, there are as many
// effects as receipts as operations, and each operation has its own.
func TestLocalEffectsUnderKills(t *testing.T) {
	n, kills := 500, 3
	if full {
		n, kills = 10_000, 30
	}
	w := newWorld(t)
	w.configure(`retry: {initial: 10ms, max: 100ms, max_attempts: 1000, max_lapses: 1000}`, createJob)
	db := w.jobs(&w.daemon)
	rnd := rand.New(rand.NewPCG(uint64(seed(t)), 2))
	intents := make([]intent, n)
	for i := range intents {
		intents[i] = intent{tool: "create_job", key: fmt.Sprintf("order-%d", i), arguments: fmt.Sprintf(`{"title":"job %d"}`, i)}
	}
	r := w.up()
	var clients sync.WaitGroup
	var acks progress
	for i := range 8 {
		clients.Go(func() {
			for j := i; j < n; j += 8 {
				w.insist(&intents[j])
				acks.add()
			}
		})
	}
	for i := range kills {
		acks.wait(t, (i+1)*n/(kills+1)+rnd.IntN(n/(2*kills+2)))
		time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
		r.Kill()
		r = w.up()
	}
	clients.Wait()
	w.until("all to be delivered", func() bool { return count(t, db, `SELECT count(*) FROM outbox_receipt`) >= n })
	w.down(r)
	for what, query := range map[string]string{
		"operations":            `SELECT count(*) FROM outbox_operation WHERE tool_name = 'create_job'`,
		"receipts":              `SELECT count(*) FROM outbox_receipt`,
		"effects":               `SELECT count(*) FROM job`,
		"operations of effects": `SELECT count(DISTINCT j.ref) FROM job AS j JOIN outbox_operation AS o ON o.status_ref = j.ref`,
		"receipts that name their effect": `SELECT count(*) FROM outbox_receipt AS r JOIN outbox_operation AS o ON o.id = r.operation_id
			JOIN job AS j ON j.ref = o.status_ref WHERE json_extract(r.result, '$.job_id') = j.id AND json_extract(o.arguments, '$.title') = j.title`,
	} {
		equal(t, what, count(t, db, query), n)
	}
	hit, lapsed := w.takenOver()
	t.Logf("%d operations, %d kills (%d with work in flight, %d leases)", n, kills, hit, lapsed)
	w.audit()
}
