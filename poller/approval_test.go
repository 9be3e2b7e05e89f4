package poller_test

import (
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// approve gives the approval that the operation waits for.
func (w *world) approve(id int64, approvalID string) error {
	w.t.Helper()
	var refused error
	ledgertest.Write(w.t, w.ledger, func(tx *ledger.Tx) error {
		ops, err := intake.Load(tx, []int64{id})
		if err != nil {
			return err
		}
		tool, _ := w.poller.Work().Registry.Lookup(ops[id].Scope.Tool)
		refused = intake.Approve(tx, ops[id], tool.Approval, approvalID, "uid:7")
		return nil
	})
	w.poller.Wake()
	return refused
}

func wanting(mode string, expires time.Duration) func(*config.Tool) {
	return func(c *config.Tool) { c.Approval = config.Approval{Mode: mode, ExpiresAfter: expires} }
}

func TestAnApprovalThatExpiresAfterItIsGivenStillHoldsUnlessItMustAtTheEffect(t *testing.T) {
	for mode, want := range map[string]entry.State{"required": entry.Delivered, "at_effect": entry.Waiting} {
		t.Run(mode, func(t *testing.T) {
			story(t, func(t *testing.T) {
				o := &outside{}
				w := open(t, options{}, tool("refund", entry.Opaque, o, wanting(mode, 2*time.Second))).run()
				id := w.accept("refund", "order-17")
				pass(time.Second)
				w.expect(id, entry.Waiting, "")
				must(t, w.poller.Pause(t.Context(), "refund", "a queue"))
				must(t, w.approve(id, "a-1"))
				pass(5 * time.Second)
				must(t, w.poller.Resume(t.Context(), "refund"))
				pass(time.Second)
				if w.entry(id).State != want {
					t.Fatalf("entry is %s, want %s", w.entry(id).State, want)
				}
				if want == entry.Delivered {
					return
				}
				equal(t, "requests", len(o.called()), 0)
				w.expect(id, entry.Waiting, "reapproval_required")
				must(t, w.approve(id, "a-2"))
				pass(time.Second)
				w.expect(id, entry.Delivered, "")
				equal(t, "requests", len(o.called()), 1)
			})
		})
	}
}

func TestWhatNobodyApprovesInTimeIsDiscarded(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{}
		w := open(t, options{}, tool("refund", entry.Idempotent, o, wanting("required", time.Minute))).run()
		id := w.accept("refund", "order-17")
		pass(59 * time.Second)
		w.expect(id, entry.Waiting, "")
		pass(5 * time.Second)
		w.expect(id, entry.Discarded, "approval_expired")
		if err := w.approve(id, "a-1"); err == nil {
			t.Error("approved after the deadline")
		}
		equal(t, "requests", len(o.called()), 0)
	})
}

func TestAnExpiredApprovalWithAnUnprovenSendIsHeld(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: always(errLost)}
		w := open(t, options{}, tool("refund", entry.Idempotent, o, every(time.Minute), wanting("at_effect", 30*time.Second))).run()
		id := w.accept("refund", "order-17")
		must(t, w.approve(id, "a-1"))
		pass(5 * time.Minute)
		w.expect(id, entry.Unknown, "reapproval_required")
		w.held(id)
		equal(t, "requests", len(o.called()), 1)
	})
}

// Whatever is changed of what an approval binds, the worker notices before any effect.
func TestAnAlteredApprovalHasNoEffect(t *testing.T) {
	for _, change := range []string{
		`UPDATE outbox_approval SET approval_id = 'a-9'`, `UPDATE outbox_approval SET approver = 'uid:8'`,
		`UPDATE outbox_approval SET approved_at = approved_at - 1`, `UPDATE outbox_approval SET expires_at = expires_at + 1`,
		`UPDATE outbox_approval SET expires_at = NULL`, `UPDATE outbox_approval SET approval_sha256 = zeroblob(32)`,
		`DELETE FROM outbox_approval`,
		`UPDATE outbox_operation SET provider = 'other'`, `UPDATE outbox_operation SET api_family = 'other'`,
		`UPDATE outbox_operation SET adapter_revision = 'other'`, `UPDATE outbox_operation SET response_id = 'other'`,
		`UPDATE outbox_operation SET call_id = 'other'`, `UPDATE outbox_operation SET status_ref = '019ae000-0000-7000-8000-000000000000'`,
	} {
		t.Run(change, func(t *testing.T) {
			story(t, func(t *testing.T) {
				o := &outside{}
				w := open(t, options{}, tool("refund", entry.Idempotent, o, wanting("required", time.Hour), func(c *config.Tool) { c.Retry.MaxAttempts = 1 }))
				r := ledgertest.Request("refund", "order-17")
				r.Origin = contract.Origin{Provider: "p", APIFamily: "f", AdapterRevision: "1", ResponseID: "r", CallID: "c"}
				a := ledgertest.Accept(t, w.ledger, w.poller.Work().Registry, r)
				must(t, w.approve(a.ID, "a-1"))
				undo := alter(t, w, change)
				w.run()
				pass(time.Second)
				w.expect(a.ID, entry.Dead, guard.Altered)
				equal(t, "requests", len(o.called()), 0)
				undo()
			})
		})
	}
}

// alter changes the file behind the poller's back. undo takes the rows away that an
// audit would find.
func alter(t *testing.T, w *world, change string) (undo func()) {
	t.Helper()
	run := func(statement string) {
		ledgertest.Write(t, w.ledger, func(tx *ledger.Tx) error { _, err := tx.Exec(statement); return err })
	}
	run(change)
	return func() { run(`DELETE FROM outbox_approval`) }
}
