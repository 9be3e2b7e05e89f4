package intake_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// past is a file with a clock that the test sets.
type past struct {
	t     *testing.T
	l     *ledger.Ledger
	reg   *contract.Registry
	clock atomic.Int64 // milliseconds since the test's own beginning of time
}

const (
	delivered = 720 * time.Hour
	discarded = 240 * time.Hour
	refusedDB = 120 * time.Hour
	tombstone = 8760 * time.Hour
)

func newPast(t *testing.T) *past {
	w := &past{t: t, reg: ledgertest.Registry(t, ledgertest.Tool("refund", entry.Idempotent), ledgertest.Tool("mail", entry.Opaque))}
	w.l = ledgertest.Open(t, ledger.Options{Now: func() time.Time {
		return time.Date(2031, 3, 30, 1, 59, 0, 0, time.UTC).Add(time.Duration(w.clock.Load()) * time.Millisecond)
	}})
	return w
}

func (w *past) pass(d time.Duration) { w.clock.Add(d.Milliseconds()) }

func (w *past) purge() intake.Purged {
	w.t.Helper()
	sum, err := intake.Purge(w.t.Context(), w.l,
		intake.Retention{Delivered: delivered, Discarded: discarded, Refused: refusedDB, Tombstone: tombstone})
	if err != nil {
		w.t.Fatalf("purge: %v", err)
	}
	return sum
}

func (w *past) purges(want intake.Purged) {
	w.t.Helper()
	if got := w.purge(); got != want {
		w.t.Errorf("purge removed %+v, want %+v", got, want)
	}
}

func (w *past) accept(tool, key string) int64 {
	w.t.Helper()
	return ledgertest.Accept(w.t, w.l, w.reg, ledgertest.Request(tool, key)).ID
}

// send claims and marks an operation.
func (w *past) send(id int64) (h entry.Held) {
	w.t.Helper()
	ledgertest.Write(w.t, w.l, func(tx *ledger.Tx) error {
		token, err := tx.Tokens(1)
		if err != nil {
			return err
		}
		d, err := entry.Get(tx, id)
		if err != nil {
			return err
		}
		h, err = entry.Take(tx, d, entry.Lease{Token: token, Until: tx.Now().Add(time.Minute), Over: tx.Now().Add(time.Minute)}, true)
		return err
	})
	return h
}

// ends brings a new operation to a state, each by the way it has there.
func (w *past) ends(key string, in entry.State) int64 {
	w.t.Helper()
	tool := "refund"
	if in == entry.Unknown {
		tool = "mail"
	}
	id := w.accept(tool, key)
	ev := entry.Evidence{Kind: entry.Outcome, Phase: "sending", Class: "c", Code: "c"}
	switch in {
	case entry.Delivered:
		h, op := w.send(id), load(w.t, w.l, id)
		sum := contract.ResultDigest([]byte(`{}`))
		ledgertest.Write(w.t, w.l, func(tx *ledger.Tx) error {
			if err := entry.Record(tx, h, ev); err != nil {
				return err
			}
			return entry.Deliver(tx, h, entry.Receipt{Result: []byte(`{}`), ResultSum: sum, Binding: op.Bind(sum, "").Digest(), How: entry.Fresh})
		})
	case entry.Discarded:
		ledgertest.Write(w.t, w.l, func(tx *ledger.Tx) error { return entry.Drop(tx, entry.Cancel, id, entry.Pending, "cancelled") })
	case entry.Dead:
		h := w.send(id)
		ledgertest.Write(w.t, w.l, func(tx *ledger.Tx) error {
			_, err := h.Nothing(tx, entry.Nothing{Event: entry.Reject, Evidence: ev, GiveUp: "rejected"})
			return err
		})
	case entry.Unknown:
		h := w.send(id)
		ledgertest.Write(w.t, w.l, func(tx *ledger.Tx) error {
			_, err := h.Doubt(tx, entry.Doubt{Event: entry.Maybe, To: entry.Unknown, Reason: "unproven", Evidence: ev})
			return err
		})
	case entry.Sending:
		w.send(id)
	}
	return id
}

func (w *past) keys() (keys []string) {
	w.t.Helper()
	ledgertest.Read(w.t, w.l, func(v *ledger.View) error {
		return v.Each(func(r *ledger.Row) error {
			var key string
			err := r.Scan(&key)
			keys = append(keys, key)
			return err
		}, `SELECT idempotency_key FROM outbox_operation ORDER BY id`)
	})
	return keys
}

func (w *past) keeps(keys ...string) {
	w.t.Helper()
	if got := w.keys(); !slices.Equal(got, keys) {
		w.t.Errorf("operations %q are left, want %q", got, keys)
	}
}

func TestPurgeKeepsWhatMayStillNeedSomebodyAndWhatIsNotOldEnough(t *testing.T) {
	w := newPast(t)
	states := []entry.State{entry.Pending, entry.Sending, entry.Unknown, entry.Dead, entry.Delivered, entry.Discarded}
	for _, s := range states {
		w.ends("old "+string(s), s)
	}
	w.pass(delivered - time.Hour)
	for _, s := range states {
		w.ends("new "+string(s), s)
	}
	w.purges(intake.Purged{Operations: 1}) // discarded: kept for less time
	w.pass(2 * time.Hour)
	w.purges(intake.Purged{Operations: 1})
	w.keeps("old pending", "old sending", "old unknown", "old dead",
		"new pending", "new sending", "new unknown", "new dead", "new delivered", "new discarded")
	for table, want := range map[string]int{"outbox_entry": 10, "outbox_receipt": 1, "outbox_tombstone": 2} {
		if n := count(t, w.l, `SELECT count(*) FROM `+table); n != want {
			t.Errorf("%s has %d rows, want %d", table, n, want)
		}
	}
	if n := count(t, w.l, `SELECT count(*) FROM outbox_attempt WHERE operation_id NOT IN (SELECT id FROM outbox_operation)`); n != 0 {
		t.Errorf("%d pieces of evidence are of no operation", n)
	}
}

// An operation stays as long as something that follows from it has not ended, dead
// included: somebody will look for where it came from.
func TestPurgeKeepsTheParentOfWhatIsNotOver(t *testing.T) {
	w := newPast(t)
	for _, state := range []entry.State{entry.Pending, entry.Dead, entry.Unknown, entry.Delivered, entry.Discarded} {
		w.ends("parent of "+string(state), entry.Delivered)
		id := w.ends(string(state), state)
		ledgertest.Write(t, w.l, func(tx *ledger.Tx) error {
			_, err := tx.Exec(`UPDATE outbox_operation SET parent = (SELECT status_ref FROM outbox_operation WHERE idempotency_key = ?) WHERE id = ?`,
				"parent of "+string(state), id)
			return err
		})
	}
	w.pass(delivered + time.Hour)
	w.purges(intake.Purged{Operations: 4})
	w.keeps("parent of pending", "pending", "parent of dead", "dead", "parent of unknown", "unknown")
}

// A delivery may be proven while the attempt that made it is not over: what it
// still says must find its operation.
func TestPurgeWaitsForTheEndOfTheAttempt(t *testing.T) {
	w := newPast(t)
	id := w.ends("slow", entry.Delivered)
	ledgertest.Write(t, w.l, func(tx *ledger.Tx) error {
		_, err := tx.Exec(`UPDATE outbox_entry SET over_at = ? WHERE operation_id = ?`, w.l.Now().Add(2*delivered), id)
		return err
	})
	w.pass(delivered + time.Hour)
	w.purges(intake.Purged{})
	w.pass(delivered)
	w.purges(intake.Purged{Operations: 1})
}

func TestALateOutcomeOfAPurgedOperationLeavesNothing(t *testing.T) {
	w := newPast(t)
	w.ends("gone", entry.Delivered)
	h := entry.Held{ID: 1, Token: 1, Attempt: 1, Round: 1, State: entry.Sending}
	w.pass(delivered + time.Hour)
	w.purges(intake.Purged{Operations: 1})
	err := w.l.Write(t.Context(), func(tx *ledger.Tx) error {
		return entry.Record(tx, h, entry.Evidence{Kind: entry.Late, Phase: "sending", Class: "c", Code: "c"})
	})
	if n := count(t, w.l, `SELECT count(*) FROM outbox_attempt`); err != nil || n != 0 {
		t.Errorf("late evidence: error %v, %d rows; want none of both", err, n)
	}
}

func TestAPurgedKeyIsAnsweredFromItsTombstone(t *testing.T) {
	w := newPast(t)
	w.ends("done", entry.Delivered)
	w.ends("dropped", entry.Discarded)
	w.pass(delivered + time.Hour)
	w.purges(intake.Purged{Operations: 2})
	for key, state := range map[string]entry.State{"done": entry.Delivered, "dropped": entry.Discarded} {
		_, err := submit(w.l, w.reg, ledgertest.Request("refund", key))
		var gone *intake.Gone
		if !errors.As(err, &gone) || gone.State != state || len(gone.StatusRef) != 36 {
			t.Errorf("submit %q again: %v (%+v), want that it is gone, %s", key, err, gone, state)
		}
		other := ledgertest.Request("refund", key)
		other.Arguments = []byte(`{"order":18}`)
		_, err = submit(w.l, w.reg, other)
		var conflict *intake.Conflict
		if !errors.As(err, &conflict) || !slices.Equal(conflict.Fields, []string{"request_sha256"}) {
			t.Errorf("submit another request as %q: %v, want a conflict over the digest", key, err)
		}
	}
	elsewhere := ledgertest.Request("refund", "done")
	elsewhere.Scope.Tenant = "globex"
	if a, err := submit(w.l, w.reg, elsewhere); err != nil || !a.New {
		t.Errorf("the same key of another tenant: %+v, %v, want a new operation", a, err)
	}
}

func TestARowOfAPurgedKeyIsRefused(t *testing.T) {
	w := newPast(t)
	w.ends("done", entry.Delivered)
	w.pass(delivered + time.Hour)
	w.purges(intake.Purged{Operations: 1})
	row := map[string]any{"tenant_id": "acme", "subject_id": "shop", "tool_name": "refund", "idempotency_key": "done", "arguments": `{"order":17}`}
	insert(t, w.l, row)
	row["idempotency_key"] = "fresh"
	insert(t, w.l, row)
	if d := drain(t, w.l, w.reg, 10); d.Refused != 1 || d.Accepted != 1 {
		t.Fatalf("drained %+v, want one refused and one accepted", d)
	}
	if r := refused(t, w.l); r.code != "ALREADY_PURGED" || !strings.Contains(r.message, "was delivered") {
		t.Errorf("refused with %q, %q", r.code, r.message)
	}
	w.pass(refusedDB + time.Hour)
	w.purges(intake.Purged{Refused: 1})
}

func TestAKeyIsFreeOnceItsTombstoneIsGoneAndItsIDNeverComesBack(t *testing.T) {
	w := newPast(t)
	var last int64
	for i := range 250 {
		last = w.ends(fmt.Sprintf("key-%d", i), entry.Discarded)
	}
	w.pass(discarded + time.Hour)
	w.purges(intake.Purged{Operations: 250})
	w.pass(tombstone)
	w.purges(intake.Purged{})
	w.pass(time.Hour)
	w.purges(intake.Purged{Tombstones: 250})
	if id := w.accept("refund", "key-0"); id <= last {
		t.Errorf("the new operation has id %d, which one before had (the last was %d)", id, last)
	}
}

// What the application's own tables and triggers do to a row stops no other, and
// the row goes once they let it.
func TestOneStuckRowDoesNotStopThePurge(t *testing.T) {
	for name, c := range map[string]struct{ stop, undo string }{
		"reference": {`INSERT INTO shipment VALUES ((SELECT id FROM outbox_operation WHERE idempotency_key = 'stuck'))`, `DELETE FROM shipment`},
		"abort":     {`CREATE TRIGGER x BEFORE DELETE ON outbox_operation WHEN old.idempotency_key = 'stuck' BEGIN SELECT RAISE(ABORT, 'no'); END`, `DROP TRIGGER x`},
		"rollback":  {`CREATE TRIGGER x BEFORE DELETE ON outbox_operation WHEN old.idempotency_key = 'stuck' BEGIN SELECT RAISE(ROLLBACK, 'no'); END`, `DROP TRIGGER x`},
		"ignore":    {`CREATE TRIGGER x BEFORE DELETE ON outbox_operation WHEN old.idempotency_key = 'stuck' BEGIN SELECT RAISE(IGNORE); END`, `DROP TRIGGER x`},
		"receipt":   {`CREATE TRIGGER x BEFORE DELETE ON outbox_receipt WHEN old.operation_id = 2 BEGIN SELECT RAISE(IGNORE); END`, `DROP TRIGGER x`},
		"tombstone": {`CREATE TRIGGER x BEFORE INSERT ON outbox_tombstone WHEN new.idempotency_key = 'stuck' BEGIN SELECT RAISE(ABORT, 'no'); END`, `DROP TRIGGER x`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPast(t)
			ddl(t, w.l, `CREATE TABLE shipment (operation_id INTEGER REFERENCES outbox_operation (id))`)
			for _, key := range []string{"one", "stuck", "three"} {
				w.ends(key, entry.Delivered)
			}
			ddl(t, w.l, c.stop)
			w.pass(delivered + time.Hour)
			w.purges(intake.Purged{Operations: 2, Kept: 1})
			w.keeps("stuck")
			w.purges(intake.Purged{Kept: 1})
			ledgertest.Audit(t, w.l)
			ddl(t, w.l, c.undo)
			w.purges(intake.Purged{Operations: 1})
		})
	}
}

func TestStuckRefusalsAndTombstonesStopNoOthers(t *testing.T) {
	w := newPast(t)
	for _, key := range []string{"one", "stuck", "three"} {
		w.ends(key, entry.Discarded)
		insert(t, w.l, map[string]any{"tenant_id": "acme", "subject_id": "shop", "tool_name": "refund", "idempotency_key": key, "arguments": `no JSON`})
	}
	drain(t, w.l, w.reg, 10)
	ddl(t, w.l, `CREATE TRIGGER r BEFORE DELETE ON outbox_refused WHEN old.idempotency_key = 'stuck' BEGIN SELECT RAISE(ROLLBACK, 'no'); END`)
	ddl(t, w.l, `CREATE TRIGGER s BEFORE DELETE ON outbox_tombstone WHEN old.idempotency_key = 'stuck' BEGIN SELECT RAISE(ABORT, 'no'); END`)
	w.pass(discarded + time.Hour)
	w.purges(intake.Purged{Operations: 3, Refused: 2, Kept: 1})
	w.pass(tombstone + time.Hour)
	w.purges(intake.Purged{Tombstones: 2, Kept: 2})
}
