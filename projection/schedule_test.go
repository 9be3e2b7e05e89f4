package projection_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
	"github.com/outboxd/outboxd/projection"
)

// A result that was asked for in turn 1, and an interrupt that opens turn 2: in
// either order, with the process restarted between the result and its projection.
// The job is completed in all of them. Without the guard the second schedule writes
// the result of turn 1 to turn 2: testdata/unguarded.go.
func TestTheSchedulesOfALateResult(t *testing.T) {
	for _, c := range []struct {
		order []string
		want  string
	}{
		{[]string{"project", "interrupt"}, "[1] [written]"},
		{[]string{"interrupt", "project"}, "[] [quarantined]"},
	} {
		t.Run(c.order[0]+" first", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.session("s")
				w.completed(w.begun(request("job-1", "s", 1)), `{"order":17}`)
				w.reopen()
				for _, step := range c.order {
					if step == "project" {
						w.project()
					} else {
						w.interrupt("s")
					}
				}
				w.project() // redelivery appends nothing
				w.want("s", c.want)
				if n := w.count(`SELECT count(*) FROM outbox_entry WHERE tool_name = 'job' AND state = 'delivered'`); n != 1 {
					t.Errorf("got %d completed jobs, want 1", n)
				}
				if n := w.count(`SELECT count(*) FROM outbox_history WHERE source_turn = 1 AND json_extract(result, '$.order') = 17`); n != 1 {
					t.Errorf("the result is kept %d times, want once", n)
				}
			})
		})
	}
}

func TestAStoppedTurnIsNotWrittenAlthoughItIsCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.session("s")
		held := w.begun(request("job-1", "s", 1))
		w.stop("s")
		w.stop("s") // again changes nothing
		w.completed(held, `1`)
		w.project()
		w.want("s", "[] [quarantined]")
		if n := w.count(`SELECT count(*) FROM outbox_history WHERE current_turn = 1 AND source_open = 0`); n != 1 {
			t.Error("the record does not say that turn 1 was current and closed")
		}
		w.interrupt("s") // the next turn begins
		w.completed(w.begun(request("job-2", "s", 2)), `2`)
		w.project()
		w.want("s", "[2] [quarantined written]")
	})
}

// Every way in which an operation ends is told.
func TestEveryEndSurfaces(t *testing.T) {
	ev := entry.Evidence{Kind: entry.Outcome, Phase: "sending", Class: "x", Code: "x"}
	ends := map[string]func(*world, *ledger.Tx, entry.Held) error{
		"delivered": func(w *world, tx *ledger.Tx, h entry.Held) error { return w.deliver(tx, h, `1`) },
		"dead": func(_ *world, tx *ledger.Tx, h entry.Held) error {
			_, err := h.Nothing(tx, entry.Nothing{Event: entry.Reject, Evidence: ev, GiveUp: "rejected"})
			return err
		},
		"unknown": func(_ *world, tx *ledger.Tx, h entry.Held) error {
			_, err := h.Doubt(tx, entry.Doubt{Event: entry.Maybe, To: entry.Unknown, Reason: "unproven", Evidence: ev})
			return err
		},
		"unknown by a lapse": func(_ *world, tx *ledger.Tx, h entry.Held) error { return h.Lapse(tx) },
		"discarded": func(_ *world, tx *ledger.Tx, h entry.Held) error {
			if err := h.Undo(tx); err != nil {
				return err
			}
			_, err := entry.Withdraw(tx, h.ID)
			return err
		},
		"discarded by review": func(_ *world, tx *ledger.Tx, h entry.Held) error {
			if _, err := h.Nothing(tx, entry.Nothing{Event: entry.Reject, Evidence: ev, GiveUp: "rejected"}); err != nil {
				return err
			}
			return entry.Drop(tx, entry.Discard, h.ID, entry.Dead, "not wanted")
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.session("s")
				h := w.begun(request("job-1", "s", 1))
				w.write(func(tx *ledger.Tx) error { return end(w, tx, h) })
				w.project()
				w.want("s", "[1] [written]")
				if n := w.count(`SELECT count(*) FROM outbox_history AS h JOIN outbox_operation AS o ON o.status_ref = h.status_ref
					JOIN outbox_entry AS e ON e.operation_id = o.id WHERE e.state = h.state AND e.reason IS h.reason`); n != 1 {
					t.Error("the row does not say how it ended")
				}
			})
		})
	}
}

// An operation that was held unknown and then resolved ends twice, and is told twice.
func TestAnEndAfterAnEndIsToldToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.session("s")
		h := w.begun(request("job-1", "s", 1))
		w.write(func(tx *ledger.Tx) error { return h.Lapse(tx) })
		w.project()
		w.interrupt("s")
		w.completed(h, `{"late":true}`) // carries the claim's token
		w.project()
		w.want("s", "[1] [written quarantined]")
	})
}

// What does not name a turn, and what only goes on, is told to nobody.
func TestNothingElseSurfaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.session("s")
		w.completed(w.begun(request("label", "s", 0)), `1`)
		again := w.begun(request("again", "s", 1))
		w.write(func(tx *ledger.Tx) error {
			_, err := again.Nothing(tx, entry.Nothing{Event: entry.Again, At: tx.Now(), Evidence: entry.Evidence{Kind: entry.Outcome}})
			return err
		})
		if n := w.count(`SELECT count(*) FROM outbox_operation WHERE tool_name = ?`, projection.ToolName); n != 0 {
			t.Errorf("got %d projections, want none", n)
		}
	})
}

// The settle and its projection are one commit: a process that dies before it has
// neither, one that dies after it has both.
func TestACrashOnEitherSideOfTheSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.session("s")
		h := w.begun(request("job-1", "s", 1))
		crash := func(tx *ledger.Tx) error {
			if err := w.deliver(tx, h, `1`); err != nil {
				return err
			}
			_, err := tx.Exec(`INSERT OR ROLLBACK INTO outbox_meta (id) VALUES (NULL)`) // the whole transaction is gone
			return err
		}
		if err := w.l.Write(t.Context(), crash); err == nil {
			t.Fatal("the transaction survived")
		}
		w.reopen()
		if n := w.count(`SELECT count(*) FROM outbox_operation WHERE parent IS NOT NULL`) + w.count(`SELECT count(*) FROM outbox_receipt`); n != 0 {
			t.Errorf("before the commit: got %d receipts and projections, want none", n)
		}
		w.completed(h, `1`)
		w.reopen()
		if n := w.count(`SELECT count(*) FROM outbox_operation AS f JOIN outbox_operation AS o ON o.status_ref = f.parent
			JOIN outbox_receipt AS r ON r.operation_id = o.id`); n != 1 {
			t.Errorf("after the commit: got %d projections of receipts, want 1", n)
		}
		w.project()
		w.want("s", "[1] [written]")
	})
}

// A projection that cannot be accepted is refused in the commit of the settle,
// which does not fail for it.
func TestAProjectionThatCannotBeAcceptedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.session("s")
		h := w.begun(request("job-1", "s", 1))
		w.write(func(tx *ledger.Tx) error {
			_, err := tx.Exec(`CREATE TRIGGER x BEFORE INSERT ON outbox_operation WHEN new.parent IS NOT NULL BEGIN SELECT RAISE(ABORT, 'no'); END`)
			return err
		})
		w.completed(h, `1`)
		if n := w.count(`SELECT count(*) FROM outbox_refused AS f JOIN outbox_operation AS o ON o.status_ref = f.parent
			JOIN outbox_entry AS e ON e.operation_id = o.id
			WHERE f.tool_name = ? AND f.code = ? AND e.state = 'delivered'`, projection.ToolName, intake.StoreRefused); n != 1 {
			t.Errorf("got %d refused projections of delivered jobs, want 1", n)
		}
	})
}

// Jobs as a poller runs them: the whole way.
func TestAJobsResultReachesItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.jobs = handler.Func(func(_ context.Context, c handler.Call) ([]byte, error) { return c.Arguments, nil })
		w.session("s")
		ledgertest.Accept(t, w.l, w.reg, request("job-1", "s", 1))
		w.project()
		w.want("s", "[1] [written]")
	})
}
