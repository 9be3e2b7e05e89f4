package api_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// What an operator must see of a tool, and of what has not even become an
// operation.
func TestTheListOfToolsShowsTheirHealth(t *testing.T) {
	w := newWorld(t, script{})
	var ids []int64
	for i := range 5 {
		ids = append(ids, ledgertest.Accept(t, w.ledger, w.work.Registry, ledgertest.Request(opaque, fmt.Sprintf("k%d", i))).ID)
	}
	later := ledgertest.Request(opaque, "later")
	later.NotBefore = time.Now().Add(time.Hour)
	ledgertest.Accept(t, w.ledger, w.work.Registry, later)
	ledgertest.Write(t, w.ledger, func(tx *ledger.Tx) error {
		var held [3]entry.Held
		for i := range held {
			due, err := entry.Get(tx, ids[i])
			if err != nil {
				return err
			}
			token, err := tx.Tokens(1)
			if err != nil {
				return err
			}
			if held[i], err = entry.Take(tx, due, entry.Lease{Token: token, Until: tx.Now().Add(time.Minute), Over: tx.Now()}, i != 1); err != nil {
				return err
			}
		}
		_, err := held[0].Doubt(tx, entry.Doubt{Event: entry.Maybe, To: entry.Unknown, Reason: "unproven",
			Evidence: entry.Evidence{Kind: entry.Outcome, Phase: "sending", Class: "may_have_happened", Code: "timeout"}})
		if err != nil {
			return err
		}
		if _, err = held[1].GiveUp(tx, "rejected", true, entry.Evidence{Kind: entry.Blocked, Phase: "claimed", Class: "not_sent", Code: "x"}); err != nil {
			return err
		}
		for _, row := range [][2]string{{"mail", `{}`}, {"mail", `{"n":1}`}, {"fax", `{}`}, {opaque, `{`}} {
			if _, err := tx.Exec(`INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)
				VALUES ('acme', 'shop', ?, 'order-' || (SELECT count(*) FROM outbox_intake), ?)`, row[0], row[1]); err != nil {
				return err
			}
		}
		_, err = intake.Drain(tx, w.work.Registry, 100)
		return err
	})
	list, err := w.client.Tools(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := api.Intake{Parked: 3, Refused: 1, Tools: []api.Parked{{Name: "mail", Rows: 2}, {Name: "fax", Rows: 1}}}
	if d := cmp.Diff(want, list.Intake); d != "" {
		t.Errorf("intake (-want +got):\n%s", d)
	}
	for _, tool := range list.Tools {
		want := api.Load{}
		if tool.Name == opaque {
			want = api.Load{InFlight: 1, Due: 2, Later: 1, Unknown: 1, Dead: 1}
		}
		got := *tool.Load
		if times := !got.OldestDueAt.IsZero() && !got.OldestDoubtAt.IsZero(); times != (tool.Name == opaque) {
			t.Errorf("%s: the oldest are of %s and %s", tool.Name, got.OldestDueAt, got.OldestDoubtAt)
		}
		if d := cmp.Diff(want, got, cmpopts.IgnoreFields(api.Load{}, "OldestDueAt", "OldestDoubtAt", "OldestDueAge")); d != "" {
			t.Errorf("%s (-want +got):\n%s", tool.Name, d)
		}
		if tool.Breaker != "closed" {
			t.Errorf("%s: its breaker is %s", tool.Name, tool.Breaker)
		}
	}
}

func TestTheListOfToolsShowsTheBreaker(t *testing.T) {
	w := newWorld(t, script{})
	for until, want := range map[time.Time]string{
		time.Now().Add(time.Hour): "open", time.Now().Add(-time.Second): "probing", {}: "closed",
	} {
		ledgertest.Write(t, w.ledger, func(tx *ledger.Tx) error {
			_, err := tx.Exec(`INSERT INTO outbox_tool (tool_name, breaker_until) VALUES (?1, ?2)
				ON CONFLICT DO UPDATE SET breaker_until = ?2`, opaque, until)
			return err
		})
		list, err := w.client.Tools(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Tools {
			if tool.Name == opaque && (tool.Breaker != want || tool.BreakerUntil.IsZero() == (want == "open")) {
				t.Errorf("a breaker until %s is %q until %s, want %s", until, tool.Breaker, tool.BreakerUntil, want)
			}
		}
	}
}
