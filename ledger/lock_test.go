package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

func TestWriteWhileTheLockIsHeldElsewhere(t *testing.T) {
	l := fresh(t, ledger.Options{})
	holder := start(t, "hold", l.Path())
	holder.wants("held")

	ran := false
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	err := l.Write(ctx, func(*ledger.Tx) error { ran = true; return nil })
	if !errors.Is(err, ledger.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) || ran {
		t.Errorf("with a deadline: got %v, ran %v, want %v, not run", err, ran, ledger.ErrBusy)
	}

	written := make(chan error, 1)
	go func() { written <- l.Write(context.Background(), insert(1, "kept")) }()
	eventually(t, "health says busy", func() bool { return l.Health().Busy > 0 })
	if err := l.Read(t.Context(), func(v *ledger.View) error { return v.One(`SELECT 1`).Scan(new(int)) }); err != nil {
		t.Errorf("reading meanwhile: %v", err)
	}
	select {
	case err := <-written:
		t.Fatalf("written through another's lock: %v", err)
	default:
	}
	holder.goOn()
	if err := <-written; err != nil {
		t.Errorf("after the lock: %v", err)
	}
	if busy := l.Health().Busy; busy != 0 {
		t.Errorf("health still says busy for %v", busy)
	}
	if !keys(t, l.Path())[1] {
		t.Error("what was acknowledged is not there")
	}
}

// A lock that nobody waits for is not waited for: the committer sleeps.
func TestCloseGivesUpALockInTime(t *testing.T) {
	path := fresh(t, ledger.Options{}).Path()
	synctest.Test(t, func(t *testing.T) {
		l, err := ledger.Open(context.Background(), path, ledger.Options{})
		if err != nil {
			t.Fatal(err)
		}
		db, err := plain(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		tx, err := db.Begin() // immediate
		if err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() { written <- l.Write(context.Background(), insert(1, "")) }()
		<-time.After(time.Minute)
		if busy := l.Health().Busy; busy < 59*time.Second {
			t.Errorf("health says busy for %v, want a minute", busy)
		}
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-written; !errors.Is(err, ledger.ErrBusy) {
			t.Errorf("write: got %v, want %v", err, ledger.ErrBusy)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	})
	if keys(t, path)[1] {
		t.Error("what was refused is there")
	}
}

// Another process keeps writing beside a saturated committer and never waits for
// longer than its own timeout.
func TestForeignWriterIsNotStarved(t *testing.T) {
	l := fresh(t, ledger.Options{})
	ctx, stop := context.WithCancel(t.Context())
	var written atomic.Int64
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for ctx.Err() == nil {
				err := l.Write(context.Background(), func(tx *ledger.Tx) error {
					_, err := tx.Exec(`INSERT INTO note (v) VALUES ('ours')`)
					return err
				})
				if err != nil {
					t.Errorf("write: %v", err)
					return
				}
				written.Add(1)
			}
		})
	}
	foreign := start(t, "foreign", l.Path())
	foreign.wants(fmt.Sprintf("%d done, 0 failed", foreignTimes))
	stop()
	writers.Wait()
	if got, want := len(keys(t, l.Path())), int(written.Load())+foreignTimes; got != want {
		t.Errorf("%d rows, want %d", got, want)
	}
}

// foreignWriter is an application with transactions of its own.
func foreignWriter(path string) error {
	db, err := plain(path)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	failed := 0
	for range foreignTimes {
		if err := foreignTx(db); err != nil {
			fmt.Println(err)
			failed++
		}
	}
	fmt.Printf("%d done, %d failed\n", foreignTimes, failed)
	return nil
}

func foreignTx(db *sql.DB) error {
	tx, err := db.Begin() // immediate
	if err != nil {
		return err
	}
	if _, err := tx.Exec(`INSERT INTO note (v) VALUES ('theirs')`); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
