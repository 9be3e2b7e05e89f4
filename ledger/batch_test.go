package ledger

import (
	"context"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// batchFile is an open file with tables whose triggers and keys can destroy a
// transaction.
func batchFile(t *testing.T, o Options) *Ledger {
	t.Helper()
	o.Create = true
	if err := registerCancel(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(context.Background(), filepath.Join(t.TempDir(), "outbox.db"), o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	err = l.Write(context.Background(), func(tx *Tx) error {
		for _, stmt := range []string{
			`CREATE TABLE note (k INTEGER PRIMARY KEY, v TEXT)`,
			`CREATE TABLE log (k INTEGER)`, // shows whether a closure took effect twice
			`CREATE TABLE child (k INTEGER PRIMARY KEY, note INTEGER REFERENCES note (k) DEFERRABLE INITIALLY DEFERRED)`,
			`CREATE TRIGGER boom BEFORE INSERT ON note WHEN new.v = 'boom' BEGIN SELECT RAISE(ROLLBACK, 'boom'); END`,
			`INSERT INTO note VALUES (0, '')`,
		} {
			if _, err := tx.Exec(stmt); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("make tables: %v", err)
	}
	return l
}

func closeLedger(t *testing.T, l *Ledger) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// together runs closures in one batch: a first one keeps the committer until all
// of them wait. Inside a bubble of synctest no time passes, so that the batch
// does not end early.
func together(l *Ledger, fns []func(*Tx) error) []error {
	gate := make(chan struct{})
	go func() {
		_ = l.Write(context.Background(), func(*Tx) error { <-gate; return nil })
	}()
	synctest.Wait()
	errs := make([]error, len(fns))
	done := make(chan struct{})
	for i, fn := range fns {
		go func() {
			errs[i] = l.Write(context.Background(), fn)
			done <- struct{}{}
		}()
		synctest.Wait() // in order
	}
	close(gate)
	for range fns {
		<-done
	}
	return errs
}

func note(k int) func(*Tx) error {
	return func(tx *Tx) error {
		if _, err := tx.Exec(`INSERT INTO note VALUES (?, 'good')`, k); err != nil {
			return err
		}
		_, err := tx.Exec(`INSERT INTO log VALUES (?)`, k)
		return err
	}
}

// kept are the rows that the file holds, how often each closure's effect among them.
func kept(t *testing.T, l *Ledger) (notes []int, twice int) {
	t.Helper()
	c, err := connect(l.Path(), reading)
	if err != nil {
		t.Fatalf("open anew: %v", err)
	}
	defer func() { _ = c.close() }()
	err = c.each(func(r *Row) error {
		var k int
		err := r.Scan(&k)
		notes = append(notes, k)
		return err
	}, `SELECT k FROM note WHERE k > 0 ORDER BY k`)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	if err := c.one(`SELECT count(*) - count(DISTINCT k) FROM log`).Scan(&twice); err != nil {
		t.Fatalf("read: %v", err)
	}
	return notes, twice
}

// fullOnce makes the disk full for one statement.
func fullOnce(tx *Tx) error {
	var pages int64
	if err := tx.One(`PRAGMA page_count`).Scan(&pages); err != nil {
		return err
	}
	limit := func(n int64) error { return tx.c.one(`PRAGMA max_page_count = ` + itoa(n)).err }
	if err := limit(pages); err != nil {
		return err
	}
	_, err := tx.Exec(`INSERT INTO note VALUES (999, zeroblob(100000))`)
	return errors.Join(err, limit(1<<30))
}

func itoa(n int64) string {
	var b []byte
	for ; n > 0; n /= 10 {
		b = append(b, byte('0'+n%10))
	}
	slices.Reverse(b)
	return string(b)
}

// cancelRunning is called by the SQL function of that name.
var cancelRunning context.CancelFunc

var registerCancel = sync.OnceValue(func() error {
	return sqlite.RegisterScalarFunction("cancel_running", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		cancelRunning()
		return int64(0), nil
	})
})

// interrupted is cancelled in the middle of a statement that writes.
func interrupted(tx *Tx) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cancelRunning = cancel
	_, err := tx.c.raw.(driver.ExecerContext).ExecContext(ctx, `INSERT INTO log
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
		SELECT IIF(i = 1000, cancel_running(), i) FROM n LIMIT 1000000000`, nil)
	return err
}

var killers = []struct {
	name string
	fn   func(*Tx) error
	want error // nil: any
	code int   // 0: any
}{
	{"insert or rollback", func(tx *Tx) error {
		_, err := tx.Exec(`INSERT OR ROLLBACK INTO note VALUES (0, 'again')`)
		return err
	}, ErrVoid, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY},
	{"trigger", func(tx *Tx) error {
		_, err := tx.Exec(`INSERT INTO note VALUES (999, 'boom')`)
		return err
	}, ErrVoid, sqlite3.SQLITE_CONSTRAINT_TRIGGER},
	{"disk full", fullOnce, ErrDiskFull, sqlite3.SQLITE_FULL},
	{"interrupt", interrupted, ErrVoid, 0},
	{"interrupt, swallowed", func(tx *Tx) error {
		_ = interrupted(tx)
		return nil
	}, ErrVoid, 0},
	{"cancelled context", func(tx *Tx) error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := tx.c.raw.(driver.ExecerContext).ExecContext(ctx, `INSERT INTO note VALUES (999, '')`, nil)
		return err
	}, context.Canceled, 0},
	{"deferred foreign key", func(tx *Tx) error {
		_, err := tx.Exec(`INSERT INTO child VALUES (1, 12345)`)
		return err
	}, ErrForeignKey, 0},
	{"swallowed error", func(tx *Tx) error {
		_, _ = tx.Exec(`INSERT OR ROLLBACK INTO note VALUES (0, 'again')`)
		_, _ = tx.Exec(`INSERT INTO note VALUES (999, 'after')`)
		return nil
	}, ErrVoid, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY},
	{"swallowed error of a row", func(tx *Tx) error {
		_ = tx.One(`INSERT INTO note VALUES (999, 'boom') RETURNING k`)
		_ = tx.Each(func(*Row) error { return nil }, `INSERT INTO note VALUES (999, 'after') RETURNING k`)
		return nil
	}, ErrVoid, sqlite3.SQLITE_CONSTRAINT_TRIGGER},
	{"panic", func(tx *Tx) error {
		if _, err := tx.Exec(`INSERT INTO note VALUES (999, '')`); err != nil {
			return err
		}
		panic("boom")
	}, nil, 0},
	{"panic between rows", func(tx *Tx) error {
		return tx.Each(func(*Row) error { panic("boom") }, `INSERT INTO note VALUES (999, '') RETURNING k`)
	}, nil, 0},
	{"rollback by hand", func(tx *Tx) error { _, err := tx.Exec(`ROLLBACK`); return err }, nil, sqlite3.SQLITE_AUTH},
	{"commit by hand", func(tx *Tx) error { _, err := tx.Exec(`COMMIT`); return err }, nil, sqlite3.SQLITE_AUTH},
	{"commit by hand, dressed up", func(tx *Tx) error { _, err := tx.Exec(`/* */ end transaction`); return err }, nil, sqlite3.SQLITE_AUTH},
	{"release by hand", func(tx *Tx) error { _, err := tx.Exec(`RELEASE "CLOSURE"`); return err }, nil, sqlite3.SQLITE_AUTH},
	{"attach", func(tx *Tx) error { _, err := tx.Exec(`ATTACH ':memory:' AS other`); return err }, nil, sqlite3.SQLITE_AUTH},
	{"own error", func(tx *Tx) error {
		_, err := tx.Exec(`INSERT INTO note VALUES (999, '')`)
		return errors.Join(err, errOwn)
	}, errOwn, 0},
}

var errOwn = errors.New("the closure's own reason")

// One closure of 64 does its worst: the others commit once each, and everybody
// is told the truth.
func TestBatchDeath(t *testing.T) {
	const size, bad = 64, 20
	for _, k := range killers {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := batchFile(t, Options{})
				fns := make([]func(*Tx) error, size)
				var want []int
				for i := range fns {
					fns[i] = note(i + 1)
					if i != bad {
						want = append(want, i+1)
					}
				}
				fns[bad] = k.fn
				errs := together(l, fns)
				for i, err := range errs {
					if i != bad && err != nil {
						t.Errorf("bystander %d: %v", i, err)
					}
				}
				if err := errs[bad]; err == nil || (k.want != nil && !errors.Is(err, k.want)) || (k.code != 0 && sqliteCode(err) != k.code) {
					t.Errorf("offender: got %v, want %v with code %d", err, k.want, k.code)
				}
				closeLedger(t, l)
				if got, twice := kept(t, l); !slices.Equal(got, want) || twice != 0 {
					t.Errorf("kept %v and %d twice, want %v", got, twice, want)
				}
			})
		})
	}
}

// Several offenders of several kinds in one batch.
func TestBatchDeathOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := batchFile(t, Options{})
		var fns []func(*Tx) error
		var want []int
		for _, k := range killers {
			fns = append(fns, note(len(fns)+1))
			want = append(want, len(fns))
			fns = append(fns, k.fn)
		}
		for i, err := range together(l, fns) {
			if (err == nil) != (i%2 == 0) {
				t.Errorf("closure %d: got %v", i, err)
			}
		}
		closeLedger(t, l)
		if got, twice := kept(t, l); !slices.Equal(got, want) || twice != 0 {
			t.Errorf("kept %v and %d twice, want %v", got, twice, want)
		}
	})
}

// COMMIT itself is refused: the batch is taken apart.
func TestCommitRefusedForAConstraint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := batchFile(t, Options{})
		w := &committer{l: l, q: l.q}
		rs := []*request{{}, {}, {}}
		w.c, _ = connect(l.Path(), writing)
		defer func() { _ = w.c.close() }()
		w.uncommitted(rs, true, constraint(t, l))
		for n := range rs {
			if r := l.q.pop(0); r != rs[n] || !r.alone || l.q.pop(1) != nil && n == 2 {
				t.Errorf("request %d does not run alone", n)
			}
		}
		closeLedger(t, l)
	})
}

func constraint(t *testing.T, l *Ledger) (err error) {
	err = l.Write(context.Background(), func(tx *Tx) error {
		_, err := tx.Exec(`INSERT INTO note VALUES (0, '')`)
		return err
	})
	if !isConstraint(err) {
		t.Fatalf("got %v, want a constraint error", err)
	}
	return err
}

func TestHeartbeatsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := batchFile(t, Options{})
		defer closeLedger(t, l)
		gate, done := make(chan struct{}), make(chan struct{})
		var order []string
		write := func(fn func(context.Context, func(*Tx) error) error, name string) {
			go func() {
				_ = fn(context.Background(), func(*Tx) error {
					if name == "gate" {
						<-gate
					}
					order = append(order, name)
					return nil
				})
				done <- struct{}{}
			}()
			synctest.Wait()
		}
		write(l.Write, "gate")
		write(l.Write, "first")
		write(l.Write, "second")
		write(l.WriteFirst, "urgent")
		close(gate)
		for range 4 {
			<-done
		}
		if want := []string{"gate", "urgent", "first", "second"}; !slices.Equal(order, want) {
			t.Errorf("ran %v, want %v", order, want)
		}
	})
}

// The caller's context bounds the wait in the queue, and only that.
func TestContextBoundsOnlyTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := batchFile(t, Options{})
		ctx, cancel := context.WithCancel(context.Background())
		err := l.Write(ctx, func(tx *Tx) error {
			cancel()
			return note(1)(tx)
		})
		if err != nil {
			t.Errorf("ended while the closure ran: got %v, want nil", err)
		}
		ran := false
		err = l.Write(ctx, func(*Tx) error { ran = true; return nil })
		if !errors.Is(err, context.Canceled) || ran {
			t.Errorf("ended before: got %v, ran %v, want %v and not run", err, ran, context.Canceled)
		}
		closeLedger(t, l)
		if got, _ := kept(t, l); !slices.Equal(got, []int{1}) {
			t.Errorf("kept %v, want [1]", got)
		}
	})
}

// A Tx that is kept is of no use, and a batch that changes nothing writes nothing.
func TestTxEndsWithItsClosure(t *testing.T) {
	batches := 0
	l := batchFile(t, Options{Observe: func(int, time.Duration) { batches++ }})
	defer closeLedger(t, l)
	before := batches
	var leaked *Tx
	if err := l.Write(t.Context(), func(tx *Tx) error { leaked = tx; return tx.One(`SELECT 1`).err }); err != nil {
		t.Fatal(err)
	}
	if batches != before {
		t.Error("a closure that only read was committed")
	}
	if _, err := leaked.Exec(`DELETE FROM note`); !errors.Is(err, ErrClosed) {
		t.Errorf("after its end: got %v, want %v", err, ErrClosed)
	}
	if err := l.Write(t.Context(), func(tx *Tx) error { panic("x") }); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("panic: got %v", err)
	}
}
