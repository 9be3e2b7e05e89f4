package audit_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/outboxd/outboxd/audit"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// unbound are the columns that no digest binds, and why a change of them has no
// effect that the contract forbids, or cannot be told.
var unbound = map[string]string{
	"outbox_operation.id":          "a name inside the file: the entry's foreign key finds a change",
	"outbox_operation.not_before":  "when, not what: the entry's due_at decides",
	"outbox_operation.session_id":  "where a result is shown, not what is done",
	"outbox_operation.turn":        "where a result is shown, not what is done",
	"outbox_operation.traceparent": "of the caller's trace, sent as it is",
	"outbox_operation.parent":      "a link that is shown",
	"outbox_operation.accepted_at": "when, not what",
	"outbox_receipt.operation_id":  "a name inside the file: its foreign key finds a change",
	"outbox_receipt.at":            "when, not what",
	"outbox_approval.id":           "an order inside the file",
	"outbox_approval.operation_id": "a name inside the file: its foreign key finds a change",
	"outbox_approval.consumed_at":  "when it was used, which must lie while it held",
	"outbox_receipt.attempt":       "which attempt, within those that were made",
}

// bound is an operation that waits to be worked on under an approval or, delivered,
// has its receipt.
func bound(t *testing.T, delivered bool) (*ledger.Ledger, *contract.Tool, int64) {
	t.Helper()
	ctx := context.Background()
	l, err := ledger.Open(ctx, filepath.Join(t.TempDir(), "outbox.db"), ledger.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c := ledgertest.Tool("refund", entry.Idempotent)
	c.Approval = config.Approval{Mode: "required", ExpiresAfter: time.Hour}
	reg := ledgertest.Registry(t, c)
	r := ledgertest.Request("refund", "order-17")
	r.Origin = contract.Origin{Provider: "p", APIFamily: "f", AdapterRevision: "1", ResponseID: "r", CallID: "c"}
	a := ledgertest.Accept(t, l, reg, r)
	tool, _ := reg.Lookup("refund")
	ledgertest.Write(t, l, func(tx *ledger.Tx) error {
		ops, err := intake.Load(tx, []int64{a.ID})
		if err != nil {
			return err
		}
		if err := intake.Approve(tx, ops[a.ID], tool.Approval, "ap-1", "uid:7"); err != nil || !delivered {
			return err
		}
		d, err := entry.Get(tx, a.ID)
		if err != nil {
			return err
		}
		token, err := tx.Tokens(1)
		if err != nil {
			return err
		}
		h, err := entry.Take(tx, d, entry.Lease{Token: token, Until: tx.Now().Add(time.Minute), Over: tx.Now()}, true)
		if err != nil {
			return err
		}
		result := []byte(`{"id":7}`)
		sum := contract.ResultDigest(result)
		return entry.Deliver(tx, h, entry.Receipt{Result: result, ResultSum: sum, Reference: "ref-1", Binding: ops[a.ID].Bind(sum, "ref-1").Digest(), How: entry.Fresh})
	})
	return l, tool, a.ID
}

func columns(t *testing.T, l *ledger.Ledger, table string) (names []string) {
	t.Helper()
	ledgertest.Read(t, l, func(v *ledger.View) error {
		return v.Each(func(r *ledger.Row) error {
			var name string
			err := r.Scan(&name)
			names = append(names, name)
			return err
		}, `SELECT name FROM pragma_table_info(?)`, table)
	})
	if len(names) == 0 {
		t.Fatalf("%s has no columns", table)
	}
	return names
}

// change alters one column with all checks switched off.
func change(t *testing.T, l *ledger.Ledger, table, column string) {
	t.Helper()
	ledgertest.Write(t, l, func(tx *ledger.Tx) error {
		_, err := tx.Exec(fmt.Sprintf(`UPDATE %[1]s SET %[2]s = CASE typeof(%[2]s)
			WHEN 'integer' THEN %[2]s + 1000000 WHEN 'blob' THEN zeroblob(length(%[2]s))
			WHEN 'null' THEN NULL ELSE CASE '%[2]s' WHEN 'status_ref' THEN '019ae000-0000-7000-8000-000000000000'
				WHEN 'effect' THEN 'opaque' WHEN 'how' THEN 'receipt_reconciled' WHEN 'arguments' THEN '{"order":18}'
				WHEN 'result' THEN '{"id":8}' ELSE %[2]s || 'x' END END`, table, column))
		return err
	})
}

// refusedBy is what the worker asks before any effect.
func refusedBy(t *testing.T, l *ledger.Ledger, tool *contract.Tool, id int64) (refused bool) {
	t.Helper()
	ledgertest.Read(t, l, func(v *ledger.View) error {
		ops, err := intake.Load(v, []int64{id})
		if err != nil || ops[id] == nil {
			return errors.Join(errors.New("not loaded"), err)
		}
		_, err = intake.ApprovalOf(v, ops[id])
		refused = guard.Check(ops[id], tool) != nil || err != nil
		return nil
	})
	return refused
}

func TestEveryColumnThatIsChangedBehindTheDaemonsBackIsFound(t *testing.T) {
	for _, table := range []string{"outbox_operation", "outbox_receipt", "outbox_approval"} {
		probe, _, _ := bound(t, true)
		for _, column := range columns(t, probe, table) {
			if unbound[table+"."+column] != "" {
				continue
			}
			t.Run(table+"."+column, func(t *testing.T) {
				l, _, _ := bound(t, true)
				change(t, l, table, column)
				report, err := audit.Run(context.Background(), l)
				if err != nil || report.Clean() {
					t.Errorf("audit finds nothing: %v", err)
				}
				if table == "outbox_receipt" {
					return // there is no effect any more
				}
				pending, tool, id := bound(t, false)
				change(t, pending, table, column)
				if !refusedBy(t, pending, tool, id) {
					t.Error("the worker goes on")
				}
			})
		}
	}
}
