package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/outboxd/outboxd/fencing"
	_ "modernc.org/sqlite"
	"pgregory.net/rapid"
)

// open gives a downstream's own file, with its fence in it.
func open(t *testing.T) *sql.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "downstream.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for range 2 { // the second time it is there already
		if _, err := db.ExecContext(t.Context(), fencing.Schema); err != nil {
			t.Fatalf("create the fence: %v", err)
		}
	}
	return db
}

func recorded(t *testing.T, db *sql.DB, key string) int64 {
	t.Helper()
	var token int64
	if err := db.QueryRowContext(t.Context(), `SELECT token FROM outbox_fence WHERE key = ?`, key).Scan(&token); err != nil {
		t.Fatalf("read the token of %q: %v", key, err)
	}
	return token
}

func TestLateHolderIsNotAdmitted(t *testing.T) {
	db := open(t)
	steps := []struct {
		key   string
		token int64
		want  error
	}{
		{"order-17", 10, nil},
		{"order-17", 10, nil}, // the same claim again
		{"order-17", 12, nil},
		{"order-17", 10, fencing.ErrStale},
		{"order-17", 11, fencing.ErrStale},
		{"order-17", 12, nil},
		{"order-18", 3, nil}, // another key has another fence
		{"007", 9, nil},
		{"7", 8, nil}, // not the same key
	}
	for i, s := range steps {
		if err := fencing.Admit(t.Context(), db, s.key, s.token); !errors.Is(err, s.want) {
			t.Fatalf("step %d: Admit(%q, %d) = %v, want %v", i, s.key, s.token, err, s.want)
		}
	}
	if got := recorded(t, db, "order-17"); got != 12 {
		t.Errorf("recorded token of order-17 is %d, want 12", got)
	}
}

func TestAdmissionIsUndoneWithTheEffect(t *testing.T) {
	db := open(t)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := fencing.Admit(t.Context(), tx, "order-17", 99); err != nil {
		t.Fatalf("Admit in a transaction: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := fencing.Admit(t.Context(), db, "order-17", 1); err != nil {
		t.Errorf("Admit(1) after 99 was rolled back: %v, want it admitted", err)
	}
}

func TestAdmitRefusesWhatCanBeNoToken(t *testing.T) {
	db := open(t)
	for _, token := range []int64{0, -1, fencing.MaxToken + 1} {
		if err := fencing.Admit(t.Context(), db, "order-17", token); !errors.Is(err, fencing.ErrInvalid) {
			t.Errorf("Admit(order-17, %d) = %v, want ErrInvalid", token, err)
		}
	}
	if err := fencing.Admit(t.Context(), db, "", 1); !errors.Is(err, fencing.ErrInvalid) {
		t.Errorf("Admit of an empty key = %v, want ErrInvalid", err)
	}
}

func TestAdmitSaysThatItCouldNotAsk(t *testing.T) {
	db := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := fencing.Admit(ctx, db, "order-17", 1)
	if !errors.Is(err, context.Canceled) || errors.Is(err, fencing.ErrStale) {
		t.Errorf("Admit with a cancelled context = %v, want context.Canceled", err)
	}
}

// Whatever the order, what was admitted for a key never falls and what is
// recorded at the end is the largest token of all.
func TestConcurrentHoldersLeaveTheLargestToken(t *testing.T) {
	db := open(t)
	const holders, tokens = 4, 50
	var wg sync.WaitGroup
	for h := range holders {
		wg.Go(func() {
			for i := range tokens {
				token := int64(i*holders + h + 1)
				if err := fencing.Admit(t.Context(), db, "order-17", token); err != nil && !errors.Is(err, fencing.ErrStale) {
					t.Errorf("Admit(%d): %v", token, err)
				}
			}
		})
	}
	wg.Wait()
	if got := recorded(t, db, "order-17"); got != holders*tokens {
		t.Errorf("recorded token is %d, want %d", got, holders*tokens)
	}
}

func TestAdmitAgainstAModel(t *testing.T) {
	db := open(t)
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		if _, err := db.ExecContext(ctx, `DELETE FROM outbox_fence`); err != nil {
			t.Fatal(err)
		}
		largest := map[string]int64{}
		for range rapid.IntRange(1, 10).Draw(t, "requests") {
			key := rapid.SampledFrom([]string{"a", "b", "A"}).Draw(t, "key")
			token := rapid.Int64Range(1, 6).Draw(t, "token")
			var want error
			if token < largest[key] {
				want = fencing.ErrStale
			}
			if err := fencing.Admit(ctx, db, key, token); !errors.Is(err, want) {
				t.Fatalf("Admit(%q, %d) = %v, want %v with %v recorded", key, token, err, want, largest)
			}
			largest[key] = max(largest[key], token)
		}
	})
}
