package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// jobShop is a file with tables, a view and triggers of an application.
func jobShop(t *testing.T) *ledger.Ledger {
	t.Helper()
	l := ledgertest.Open(t)
	for _, stmt := range []string{
		`CREATE TABLE job (id INTEGER PRIMARY KEY, title TEXT NOT NULL UNIQUE)`,
		`CREATE TABLE trap (id INTEGER PRIMARY KEY)`,
		`CREATE TRIGGER trapped AFTER INSERT ON trap BEGIN UPDATE outbox_meta SET commits = 0; END`,
		`CREATE TABLE door (id INTEGER PRIMARY KEY)`,
		`CREATE TRIGGER opened AFTER INSERT ON door BEGIN
			INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments) VALUES ('a', 's', 't', 'k', '{}'); END`,
		`CREATE VIEW pane AS SELECT 1 AS id`,
		`CREATE TRIGGER broken INSTEAD OF INSERT ON pane BEGIN DELETE FROM outbox_entry; END`,
		`CREATE TABLE fuse (id INTEGER PRIMARY KEY)`,
		`CREATE TRIGGER blown BEFORE INSERT ON fuse BEGIN SELECT RAISE(ROLLBACK, 'blown'); END`,
		`CREATE TABLE child (job INTEGER REFERENCES job (id) DEFERRABLE INITIALLY DEFERRED)`,
	} {
		ledgertest.Write(t, l, func(tx *ledger.Tx) error { _, err := tx.Exec(stmt); return err })
	}
	return l
}

func effect(l *ledger.Ledger, limit time.Duration, query string, args ...any) error {
	return l.Write(context.Background(), func(tx *ledger.Tx) error {
		return tx.Effect(limit, func(e *ledger.Effect) error { _, err := e.Exec(query, args...); return err })
	})
}

func jobs(t *testing.T, l *ledger.Ledger) (n int) {
	t.Helper()
	ledgertest.Read(t, l, func(v *ledger.View) error { return v.One(`SELECT count(*) FROM job`).Scan(&n) })
	return n
}

func TestAnEffectDoesOnlyWhatItMay(t *testing.T) {
	l := jobShop(t)
	for _, query := range []string{
		`BEGIN`, `COMMIT`, `ROLLBACK`, `END`, `SAVEPOINT closure`, `RELEASE closure`, `ROLLBACK TO try`, `RELEASE try`,
		`ATTACH ':memory:' AS x`, `DETACH x`, `VACUUM`, `PRAGMA user_version = 7`, `PRAGMA synchronous`, `SELECT * FROM pragma_user_version`,
		`CREATE TABLE x (a)`, `CREATE TEMP TABLE x (a)`, `DROP TABLE job`, `ALTER TABLE job ADD COLUMN x`, `CREATE INDEX x ON job (title)`,
		`CREATE TRIGGER x AFTER INSERT ON job BEGIN SELECT 1; END`, `CREATE VIEW x AS SELECT 1`, `REINDEX`, `ANALYZE`,
		`UPDATE outbox_meta SET commits = 0`, `DELETE FROM Outbox_Entry`, `INSERT INTO "outbox_receipt" DEFAULT VALUES`,
		`REPLACE INTO outbox_tool (tool_name) VALUES ('x')`, `UPDATE main.outbox_operation SET arguments = '{}'`,
		`UPDATE sqlite_sequence SET seq = 0`, `DELETE FROM sqlite_master`,
		`INSERT INTO trap VALUES (1)`, `INSERT INTO pane VALUES (1)`,
		`WITH x AS (SELECT 1) INSERT INTO outbox_history (id) SELECT 1`, `SELECT load_extension('x')`,
	} {
		err := effect(l, time.Second, query)
		if f, ok := ledger.FailureOf(err); !ok || f.Constraint || f.Code != "forbidden" && f.Code != "sqlite_1" {
			t.Errorf("%s: got %v, want it forbidden", query, err)
		}
	}
	for _, query := range []string{
		`INSERT INTO job (title) VALUES ('a')`, `UPDATE job SET title = 'b'`, `SELECT status_ref FROM outbox_operation`,
		`INSERT INTO door VALUES (1)`, `DELETE FROM outbox_intake`,
		`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) INSERT INTO job (title) SELECT i FROM n`,
	} {
		if err := effect(l, time.Second, query); err != nil {
			t.Errorf("%s: %v, want it allowed", query, err)
		}
	}
	if n := jobs(t, l); n != 4 {
		t.Errorf("got %d jobs, want 4", n)
	}
}

// The same text is forbidden to an effect although the ledger itself has it
// prepared, and stays allowed to the ledger.
func TestAStatementOfTheLedgerIsNotLentToAnEffect(t *testing.T) {
	l := jobShop(t)
	const own = `UPDATE outbox_meta SET generation = generation`
	for range 2 {
		ledgertest.Write(t, l, func(tx *ledger.Tx) error { _, err := tx.Exec(own); return err })
		if err := effect(l, time.Second, own); err == nil {
			t.Error("an effect wrote outbox_meta")
		}
	}
}

// Whatever an effect does, the closures of its batch are kept, and so is what its
// own closure does beside it where the transaction survived.
func TestAnEffectHarmsNobodyElse(t *testing.T) {
	const endless = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO job (title) SELECT 'x' || i FROM n`
	const busy = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n`
	for name, c := range map[string]struct {
		query string
		void  bool
		is    error
		code  string
	}{
		"constraint":           {`INSERT INTO job (title) VALUES (NULL)`, false, nil, "sqlite_1299"},
		"foreign key":          {`INSERT INTO child VALUES (99)`, false, ledger.ErrForeignKey, "foreign_key"},
		"insert or rollback":   {`INSERT OR ROLLBACK INTO job (title) VALUES (NULL)`, true, ledger.ErrVoid, "sqlite_1299"},
		"raise rollback":       {`INSERT INTO fuse VALUES (1)`, true, ledger.ErrVoid, "sqlite_1811"},
		"endless insert":       {endless, true, ledger.ErrOverTime, ""},
		"endless select":       {busy, false, ledger.ErrOverTime, ""},
		"no such table":        {`INSERT INTO missing VALUES (1)`, false, nil, "sqlite_1"},
		"forbidden":            {`DROP TABLE job`, false, nil, "forbidden"},
		"not a named argument": {`INSERT INTO job (title) VALUES (:title)`, false, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := jobShop(t)
			var of, failed error
			hold := make(chan struct{})
			together := func(fn func(*ledger.Tx) error) <-chan error {
				done := make(chan error, 1)
				go func() { done <- l.Write(context.Background(), fn) }()
				return done
			}
			first := together(func(*ledger.Tx) error { <-hold; return nil })
			var others []<-chan error
			for i := range 3 {
				others = append(others, together(func(tx *ledger.Tx) error {
					_, err := tx.Exec(`INSERT INTO job (title) VALUES (?)`, fmt.Sprint("other ", i))
					return err
				}))
			}
			of = nil
			culprit := together(func(tx *ledger.Tx) error {
				of = tx.Effect(300*time.Millisecond, func(e *ledger.Effect) error { _, err := e.Exec(c.query); return err })
				if errors.Is(of, ledger.ErrVoid) {
					return of
				}
				_, err := tx.Exec(`INSERT INTO job (title) VALUES ('beside')`)
				return err
			})
			close(hold)
			for _, done := range append(others, first) {
				if err := <-done; err != nil {
					t.Errorf("another closure: %v", err)
				}
			}
			failed = <-culprit
			if (failed != nil) != c.void || of == nil || c.is != nil && !errors.Is(of, c.is) {
				t.Errorf("effect: %v, closure: %v, want %v and the transaction gone: %v", of, failed, c.is, c.void)
			}
			if f, ok := ledger.FailureOf(of); c.code != "" && (!ok || f.Code != c.code) {
				t.Errorf("failure: got %+v of %v, want %s", f, of, c.code)
			}
			want := 4
			if c.void {
				want = 3
			}
			if n := jobs(t, l); n != want {
				t.Errorf("got %d jobs, want %d", n, want)
			}
		})
	}
}

// An effect that takes longer than a batch bears has the whole of its limit in a
// batch of its own.
func TestASlowEffectHasItsWholeLimit(t *testing.T) {
	l := jobShop(t)
	var runs int
	err := l.Write(context.Background(), func(tx *ledger.Tx) error {
		runs++
		return tx.Effect(time.Minute, func(e *ledger.Effect) error {
			_, err := e.Exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500000)
				INSERT INTO job (title) SELECT max(i) FROM n`)
			return err
		})
	})
	if n := jobs(t, l); err != nil || n != 1 || runs != 2 {
		t.Errorf("got %v, %d jobs in %d runs, want one in the second", err, n, runs)
	}
}

func TestAnEffectReadsWhatItWrote(t *testing.T) {
	l := jobShop(t)
	ledgertest.Write(t, l, func(tx *ledger.Tx) error {
		return tx.Effect(time.Second, func(e *ledger.Effect) error {
			if _, err := e.Exec(`INSERT INTO job (title) VALUES (:title)`, sql.Named("title", "t"), sql.Named("unused", 1)); err != nil {
				return err
			}
			var title string
			if err := e.One(`SELECT title FROM job WHERE title = ?`, "t").Scan(&title); err != nil || title != "t" {
				t.Errorf("got %q, %v", title, err)
			}
			if err := e.One(`SELECT title FROM job WHERE id = 99`).Scan(&title); !errors.Is(err, sql.ErrNoRows) {
				t.Errorf("got %v, want no rows", err)
			}
			return nil
		})
	})
}
