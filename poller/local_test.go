package poller_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

const insertJob = `INSERT INTO job (ref) VALUES (:status_ref) RETURNING id AS job_id`

// sqlTool is a local tool of statements, of which each attempt may take a second.
func sqlTool(t testing.TB, name string, statements ...string) kit {
	t.Helper()
	c := config.Tool{Name: name, Effect: "local", SQL: &config.SQL{Statements: statements},
		Retry: config.Retry{Jitter: "none", MaxAttempts: 3, Initial: 10 * time.Millisecond}, Timeout: 400 * time.Millisecond}
	pair, err := handler.Build(c)
	if err != nil {
		t.Fatal(err)
	}
	return kit{c, &outside{local: pair.Local}}
}

// shop has a table for jobs in the same file.
func shop(t testing.TB, kits ...kit) *world {
	t.Helper()
	w := open(t, options{}, kits...)
	for _, stmt := range []string{
		`CREATE TABLE job (id INTEGER PRIMARY KEY, ref TEXT NOT NULL)`,
		`CREATE TABLE fuse (id INTEGER PRIMARY KEY)`,
		`CREATE TRIGGER blown BEFORE INSERT ON fuse BEGIN SELECT RAISE(ROLLBACK, 'blown'); END`,
	} {
		ledgertest.Write(t, w.ledger, func(tx *ledger.Tx) error { _, err := tx.Exec(stmt); return err })
	}
	return w
}

func (w *world) count(query string) (n int) {
	w.t.Helper()
	ledgertest.Read(w.t, w.ledger, func(v *ledger.View) error { return v.One(query).Scan(&n) })
	return n
}

func TestALocalEffectAndItsReceiptAreOneCommit(t *testing.T) {
	story(t, func(t *testing.T) {
		w := shop(t, sqlTool(t, "job", insertJob)).run()
		ids := w.acceptMany("job", 200)
		pass(time.Second)
		for _, id := range ids {
			w.expect(id, entry.Delivered, "")
		}
		equal(t, "jobs of distinct operations", w.count(`SELECT count(DISTINCT ref) FROM job`), 200)
		equal(t, "jobs", w.count(`SELECT count(*) FROM job`), 200)
		equal(t, "results that name their job", w.count(`SELECT count(*) FROM outbox_receipt AS r JOIN outbox_operation AS o ON o.id = r.operation_id
			JOIN job AS j ON j.ref = o.status_ref WHERE json_extract(r.result, '$.job_id') = j.id`), 200)
	})
}

func TestALocalEffectThatIsRefusedLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		statement, reason, evidence string
	}{
		"constraint":         {`INSERT INTO job (ref) VALUES (NULL)`, "rejected", "outcome rejected sqlite_1299"},
		"insert or rollback": {`INSERT OR ROLLBACK INTO job (ref) VALUES (NULL)`, "rejected", "outcome rejected sqlite_1299"},
		"raise rollback":     {`INSERT INTO fuse VALUES (1)`, "rejected", "outcome rejected sqlite_1811"},
		"no such table":      {`INSERT INTO missing VALUES (1)`, "attempts_exhausted", strings.Repeat("; outcome try_again sqlite_1", 3)[2:]},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(t *testing.T) {
				w := shop(t, sqlTool(t, "bad", insertJob, c.statement), sqlTool(t, "good", insertJob)).run()
				id := w.accept("bad", "order-17")
				good := w.acceptMany("good", 50)
				pass(10 * time.Second)
				w.expect(id, entry.Dead, c.reason)
				equal(t, "evidence", join(w.evidence(id)), c.evidence)
				for _, id := range good {
					w.expect(id, entry.Delivered, "")
				}
				equal(t, "jobs", w.count(`SELECT count(*) FROM job`), 50)
			})
		})
	}
}

// In real time: the statement runs until it is ended.
func TestALocalEffectEndsAtItsLimitAndHarmsNobody(t *testing.T) {
	const endless = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO job (ref) SELECT i FROM n`
	w := shop(t, sqlTool(t, "endless", endless), sqlTool(t, "good", insertJob)).run()
	id := w.accept("endless", "order-17")
	w.acceptMany("good", 50)
	for w.entry(id).State != entry.Dead || w.states("good")[entry.Delivered] < 50 {
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	w.expect(id, entry.Dead, "attempts_exhausted")
	equal(t, "evidence", join(w.evidence(id)), strings.Repeat("; outcome try_again timeout", 3)[2:])
	equal(t, "jobs", w.count(`SELECT count(*) FROM job`), 50)
}

// A daemon that died after its claim had not produced the effect: the next one
// does, and nothing that was ever sent is in doubt.
func TestALocalEffectOfACrashIsProducedOnce(t *testing.T) {
	story(t, func(t *testing.T) {
		w := shop(t, sqlTool(t, "job", insertJob), sqlTool(t, "bad", `INSERT INTO job (ref) VALUES (NULL)`))
		var ids []int64
		for _, name := range []string{"job", "bad"} {
			id := w.accept(name, "order-17")
			ids = append(ids, id)
			ledgertest.Write(t, w.ledger, func(tx *ledger.Tx) error {
				token, err := tx.Tokens(1)
				if err != nil {
					return err
				}
				d, err := entry.Get(tx, id)
				if err != nil {
					return err
				}
				_, err = entry.Take(tx, d, entry.Lease{Token: token, Until: tx.Now().Add(time.Minute), Over: tx.Now()}, true)
				return err
			})
		}
		if err := w.ledger.Close(); err != nil {
			t.Fatal(err)
		}
		n := w.next(sqlTool(t, "job", insertJob), sqlTool(t, "bad", `INSERT INTO job (ref) VALUES (NULL)`)).run()
		pass(10 * time.Second)
		n.expect(ids[0], entry.Delivered, "")
		n.expect(ids[1], entry.Dead, "rejected") // and not unknown
		equal(t, "jobs", n.count(`SELECT count(*) FROM job`), 1)
	})
}

// The settle is the fence: where it finds another's token, the effect is gone.
func TestALocalEffectOfAStaleWorkerIsNotKept(t *testing.T) {
	story(t, func(t *testing.T) {
		w := shop(t, sqlTool(t, "job", insertJob))
		ledgertest.Write(t, w.ledger, func(tx *ledger.Tx) error {
			_, err := tx.Exec(`CREATE TRIGGER taken AFTER UPDATE OF state ON outbox_entry WHEN new.state = 'sending' AND new.attempts = 1 BEGIN
				UPDATE outbox_entry SET token = token - 1, claim_token = claim_token - 1 WHERE operation_id = new.operation_id; END`)
			return err
		})
		w.run()
		id := w.accept("job", "order-17")
		synctest.Wait()
		equal(t, "stale settles", w.seen.stale, 1)
		equal(t, "jobs", w.count(`SELECT count(*) FROM job`), 0)
		w.crash()
		n := w.next(sqlTool(t, "job", insertJob)).run()
		pass(time.Second)
		n.expect(id, entry.Delivered, "")
		equal(t, "jobs", n.count(`SELECT count(*) FROM job`), 1)
	})
}

func TestALocalFunctionReceivesTheTransaction(t *testing.T) {
	story(t, func(t *testing.T) {
		create := handler.LocalFunc(func(e *ledger.Effect, c handler.Call) ([]byte, error) {
			if _, err := e.Exec(`INSERT INTO job (ref) VALUES (?)`, c.StatusRef); err != nil {
				return nil, err
			}
			var n int
			err := e.One(`SELECT count(*) FROM job`).Scan(&n)
			if n > 1 {
				return nil, handler.Reject(context.Canceled)
			}
			return []byte(`{"jobs":1}`), err
		})
		w := shop(t, kit{config.Tool{Name: "job", Effect: "local"}, &outside{local: create}}).run()
		first := w.accept("job", "a")
		pass(time.Second)
		second := w.accept("job", "b")
		pass(time.Second)
		w.expect(first, entry.Delivered, "")
		equal(t, "receipt", w.receipt(first), `fresh 1 {"jobs":1}`)
		w.expect(second, entry.Dead, "rejected")
		equal(t, "jobs", w.count(`SELECT count(*) FROM job`), 1)
	})
}
