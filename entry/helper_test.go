package entry_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("20") // the test of the table repeats them until it has seen enough
	}
	goleak.VerifyTestMain(m)
}

// world is a real file with a clock that the test sets.
type world struct {
	t     testing.TB
	l     *ledger.Ledger
	clock atomic.Int64 // Unix milliseconds
	made  int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t}
	w.clock.Store(time.Date(2031, 3, 30, 1, 59, 0, 0, time.UTC).UnixMilli())
	l, err := ledger.Open(t.Context(), filepath.Join(fast(t), "outbox.db"), ledger.Options{Create: true, Now: w.now})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	w.l = l
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return w
}

// fast is a directory in memory where there is one: a sync costs nothing there.
func fast(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "outboxd")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (w *world) now() time.Time { return time.UnixMilli(w.clock.Load()).UTC() }

func (w *world) pass(d time.Duration) { w.clock.Add(d.Milliseconds()) }

func (w *world) write(fn func(*ledger.Tx) error) error { return w.l.Write(w.t.Context(), fn) }

// must fails the test when a step of a story is refused.
func (w *world) must(what string, fn func(*ledger.Tx) error) {
	w.t.Helper()
	if err := w.write(fn); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// refused fails the test unless the step is stale and changes nothing.
func (w *world) refused(what string, id int64, fn func(*ledger.Tx) error) {
	w.t.Helper()
	before := w.row(id)
	if err := w.write(fn); !errors.Is(err, entry.ErrStale) {
		w.t.Fatalf("%s: got %v, want %v", what, err, entry.ErrStale)
	}
	if after := w.row(id); after != before {
		w.t.Fatalf("%s was refused and changed the row:\n got %+v\nwant %+v", what, after, before)
	}
}

// operation inserts an operation without an entry.
func (w *world) operation(tx *ledger.Tx, effect entry.Effect) (int64, error) {
	w.made++
	key := fmt.Sprintf("order-%d", w.made)
	id, _, err := tx.Insert(`INSERT INTO outbox_operation (status_ref, tenant_id, subject_id, tool_name, idempotency_key,
		arguments, request_sha256, effect, wire_key, input_revision, output_revision, effect_revision,
		handler_revision, producer_revision, policy_revision, accepted_at)
		VALUES (?, 'acme', 'shop', ?, ?, '{}', zeroblob(32), ?, ?, 'i', 'o', 'e', 'h', 'p', 'y', ?)`,
		fmt.Sprintf("%036d", w.made), tool(effect), key, effect, key, tx.Now())
	return id, err
}

func tool(effect entry.Effect) string { return "tool_" + string(effect) }

// accept makes an operation and its entry, due now.
func (w *world) accept(effect entry.Effect) (id int64) {
	w.t.Helper()
	w.must("accept", func(tx *ledger.Tx) (err error) {
		if id, err = w.operation(tx, effect); err != nil {
			return err
		}
		return entry.Open(tx, id, tool(effect), entry.Begin{Due: tx.Now()})
	})
	return id
}

const (
	leaseTime = 30 * time.Second
	overTime  = 10 * time.Second
)

func (w *world) lease(tx *ledger.Tx) (entry.Lease, error) {
	token, err := tx.Tokens(1)
	return entry.Lease{Token: token, Until: tx.Now().Add(leaseTime), Over: tx.Now().Add(overTime)}, err
}

func (w *world) claim(id int64, marked bool) (h entry.Held) {
	w.t.Helper()
	w.must("claim", func(tx *ledger.Tx) error {
		l, err := w.lease(tx)
		if err != nil {
			return err
		}
		d, err := entry.Get(tx, id)
		if err != nil {
			return err
		}
		h, err = entry.Take(tx, d, l, marked)
		return err
	})
	return h
}

func (w *world) mark(h entry.Held) entry.Held {
	w.t.Helper()
	w.must("mark", func(tx *ledger.Tx) (err error) {
		h, err = entry.Hand(tx, h, tx.Now().Add(overTime))
		return err
	})
	return h
}

func (w *world) ask(id int64) (h entry.Held) {
	w.t.Helper()
	w.must("ask", func(tx *ledger.Tx) error {
		l, err := w.lease(tx)
		if err != nil {
			return err
		}
		d, err := entry.Get(tx, id)
		if err != nil {
			return err
		}
		h, err = entry.Question(tx, d, l, true)
		return err
	})
	return h
}

// row is every column of an entry, and how many receipts and pieces of evidence
// it has. The zero time and 0 stand for NULL.
type row struct {
	State                               entry.State
	Due                                 time.Time
	Owner, Token, Claim                 int64
	Sent, Over, Since                   time.Time
	By                                  int64
	Attempts, Failures, Lapses, Queries int
	Suspect                             bool
	Round                               int
	RoundAt                             time.Time
	Excused                             int64
	Reason                              string
	Changed                             time.Time
	Receipts, Evidence                  int
}

func (w *world) row(id int64) (r row) {
	w.t.Helper()
	err := w.l.Read(w.t.Context(), func(v *ledger.View) error {
		return v.One(`SELECT state, due_at, COALESCE(owner, 0), COALESCE(token, 0), claim_token, last_sent_at, over_at,
			unproven_since, COALESCE(unproven_by, 0), attempts, failures, lapses, queries, suspect, round, round_at,
			round_excused, reason, changed_at,
			(SELECT count(*) FROM outbox_receipt AS r WHERE r.operation_id = e.operation_id),
			(SELECT count(*) FROM outbox_attempt AS a WHERE a.operation_id = e.operation_id)
			FROM outbox_entry AS e WHERE operation_id = ?`, id).Scan(&r.State, &r.Due, &r.Owner, &r.Token, &r.Claim,
			&r.Sent, &r.Over, &r.Since, &r.By, &r.Attempts, &r.Failures, &r.Lapses, &r.Queries, &r.Suspect, &r.Round,
			&r.RoundAt, &r.Excused, &r.Reason, &r.Changed, &r.Receipts, &r.Evidence)
	})
	if err != nil {
		w.t.Fatalf("read entry %d: %v", id, err)
	}
	return r
}

func evidence(class string) entry.Evidence {
	return entry.Evidence{Kind: entry.Outcome, Phase: "sending", Class: class, Code: class}
}
