package ledger_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

// Whoever is told that a row is written while the ledger closes finds it there.
func TestCloseBesideWrites(t *testing.T) {
	for range 20 {
		l := fresh(t, ledger.Options{})
		var acked, refused atomic.Int64
		var writers sync.WaitGroup
		for w := range 4 {
			writers.Go(func() {
				for k := w; ; k += 4 {
					err := l.Write(context.Background(), insert(k+1, ""))
					if errors.Is(err, ledger.ErrClosed) {
						refused.Add(1)
						return
					}
					if err != nil {
						t.Errorf("write: %v", err)
						return
					}
					acked.Add(1)
				}
			})
		}
		eventually(t, "some writes", func() bool { return acked.Load() > 10 })
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
		writers.Wait()
		if got := len(keys(t, l.Path())); got != int(acked.Load()) {
			t.Fatalf("%d rows, %d acknowledged", got, acked.Load())
		}
		if err := l.Read(t.Context(), func(*ledger.View) error { return nil }); !errors.Is(err, ledger.ErrClosed) {
			t.Errorf("read after close: got %v, want %v", err, ledger.ErrClosed)
		}
	}
}

// A statement that takes long does not hold up a stop.
func TestCloseInterruptsReaders(t *testing.T) {
	l := fresh(t, ledger.Options{})
	reading, read := make(chan struct{}), make(chan error, 1)
	go func() {
		read <- l.Read(context.Background(), func(v *ledger.View) error {
			close(reading)
			return v.One(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000000) SELECT count(*) FROM n`).Scan(new(int))
		})
	}()
	<-reading
	began := time.Now()
	if err := l.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("closed after %v, want at once", took)
	}
	if err := <-read; !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("read: got %v, want %v", err, ledger.ErrClosed)
	}
}

// A function that panics gives its reader back, with no transaction on it.
func TestReaderThatPanicsIsNotLost(t *testing.T) {
	l := fresh(t, ledger.Options{Readers: 1})
	for range 3 {
		func() {
			defer func() { _ = recover() }()
			_ = l.Read(t.Context(), func(v *ledger.View) error {
				return v.Each(func(*ledger.Row) error { panic("x") }, `SELECT 1`)
			})
		}()
	}
	mustWrite(t, l, insert(1, ""))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var n int
	err := l.Read(ctx, func(v *ledger.View) error { return v.One(`SELECT count(*) FROM note`).Scan(&n) })
	if err != nil || n != 1 {
		t.Errorf("after three panics: got %d rows, %v, want 1: an old snapshot leaked, or the reader did", n, err)
	}
}

func TestReadIsOneSnapshot(t *testing.T) {
	l := fresh(t, ledger.Options{})
	err := l.Read(t.Context(), func(v *ledger.View) error {
		var before, after int
		if err := v.One(`SELECT count(*) FROM note`).Scan(&before); err != nil {
			return err
		}
		mustWrite(t, l, insert(1, ""))
		if err := v.One(`SELECT count(*) FROM note`).Scan(&after); err != nil {
			return err
		}
		if before != after {
			t.Errorf("a view saw %d rows, then %d", before, after)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	l := fresh(t, ledger.Options{Readers: 1})
	ctx, cancel := context.WithCancel(t.Context())
	rows := 0
	err := l.Read(ctx, func(v *ledger.View) error {
		return v.Each(func(*ledger.Row) error {
			if rows++; rows == 3 {
				cancel()
			}
			return nil
		}, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n LIMIT 1000000`)
	})
	if !errors.Is(err, context.Canceled) || rows != 3 {
		t.Errorf("got %v after %d rows, want %v after 3", err, rows, context.Canceled)
	}
	if err := l.Read(ctx, func(*ledger.View) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("no reader for an ended context: got %v, want %v", err, context.Canceled)
	}
}

// Tokens rise through aborted closures, concurrent writers, a clock that is set
// back and a new start.
func TestTokensRise(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
	o := ledger.Options{Now: func() time.Time { return time.UnixMilli(now.Load()) }}
	l := fresh(t, o)
	var mu sync.Mutex
	seen := map[int64]bool{}
	var last int64
	take := func(l *ledger.Ledger, n int) {
		var first int64
		if err := l.Write(context.Background(), func(tx *ledger.Tx) (err error) {
			first, err = tx.Tokens(n)
			return err
		}); err != nil {
			t.Errorf("tokens: %v", err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range int64(n) {
			if seen[first+i] {
				t.Errorf("token %d was given twice", first+i)
			}
			seen[first+i] = true
		}
		last = max(last, first+int64(n)-1)
	}
	for range 3 {
		var writers sync.WaitGroup
		for n := range 8 {
			writers.Go(func() {
				for range 20 {
					take(l, n+1)
				}
			})
		}
		writers.Wait()
		now.Add(-time.Hour.Milliseconds())
		before := last
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		epoch := l.Epoch()
		l = reopen(t, l.Path(), o)
		if l.Epoch() <= epoch {
			t.Errorf("epoch %d after %d", l.Epoch(), epoch)
		}
		if take(l, 1); last <= before {
			t.Errorf("token %d after %d", last, before)
		}
	}
}
