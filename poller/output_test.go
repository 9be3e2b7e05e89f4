package poller_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// promises gives a tool an output schema: an object with the member id.
func promises(t *testing.T) func(*config.Tool) {
	path := filepath.Join(t.TempDir(), "output.json")
	if err := os.WriteFile(path, []byte(`{"type":"object","required":["id"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(c *config.Tool) { c.OutputSchema = path }
}

func TestAnAnswerThatBreaksItsSchemaIsHeldAndNothingIsSentAgain(t *testing.T) {
	for _, effect := range []entry.Effect{entry.Idempotent, entry.Queryable, entry.Opaque} {
		t.Run(string(effect), func(t *testing.T) {
			promise := promises(t)
			story(t, func(t *testing.T) {
				o := &outside{ask: func(context.Context, handler.Call, int) handler.Answer {
					return handler.Answer{Found: handler.Applied, Result: []byte(`{"id":"r-1"}`)}
				}}
				w := open(t, options{}, tool("refund", effect, o, promise)).run()
				id := w.accept("refund", "order-17")
				pass(time.Hour)
				w.expect(id, entry.Unknown, deadletter.OutputInvalid)
				w.held(id)
				if n := len(o.called()); n != 1 {
					t.Errorf("sent %d times, want once", n)
				}
				var excerpt string
				ledgertest.Read(t, w.ledger, func(v *ledger.View) error {
					return v.One(`SELECT excerpt FROM outbox_attempt WHERE operation_id = ?`, id).Scan(&excerpt)
				})
				if !strings.Contains(excerpt, "result/id: is absent") || !strings.Contains(excerpt, `{"done":true}`) {
					t.Errorf("evidence is %q, want what is absent, and the answer", excerpt)
				}
			})
		})
	}
}

func TestAnAnswerToAQuestionThatBreaksItsSchemaIsNoReceipt(t *testing.T) {
	promise := promises(t)
	story(t, func(t *testing.T) {
		fits := false
		o := &outside{
			outcome: func(handler.Call, int) handler.Outcome { return handler.Outcome{Observed: handler.MayHaveHappened} },
			ask: func(context.Context, handler.Call, int) handler.Answer {
				if fits {
					return handler.Answer{Found: handler.Applied, Result: []byte(`{"id":"r-1"}`)}
				}
				return handler.Answer{Found: handler.Applied, Result: []byte(`{"status":"maintenance"}`)}
			},
		}
		w := open(t, options{}, tool("refund", entry.Queryable, o, promise)).run()
		id := w.accept("refund", "order-17")
		pass(time.Hour)
		w.expect(id, entry.Unknown, deadletter.OutputInvalid)
		w.held(id)
		equal(t, "questions", len(o.asked()), 1)
		fits = true
		if err := w.poller.Reconcile(context.Background(), id); err != nil {
			t.Fatalf("reconcile: %v", err)
		}
		w.expect(id, entry.Delivered, "")
		equal(t, "receipt", w.receipt(id), `receipt_reconciled 1 {"id":"r-1"}`)
	})
}

func TestAnAnswerThatFitsItsSchemaIsDelivered(t *testing.T) {
	promise := promises(t)
	story(t, func(t *testing.T) {
		o := &outside{do: func(context.Context, handler.Call, int) ([]byte, error) { return []byte(`{"id":"r-1"}`), nil }}
		w := open(t, options{}, tool("refund", entry.Opaque, o, promise)).run()
		id := w.accept("refund", "order-17")
		pass(time.Second)
		w.expect(id, entry.Delivered, "")
	})
}

func TestALocalEffectWhoseResultBreaksItsSchemaIsUndone(t *testing.T) {
	promise := promises(t)
	k := sqlTool(t, "job", insertJob)
	promise(&k.Tool)
	story(t, func(t *testing.T) {
		w := shop(t, k).run()
		id := w.accept("job", "order-17")
		pass(time.Second)
		w.expect(id, entry.Dead, deadletter.Rejected)
		equal(t, "jobs", w.count(`SELECT count(*) FROM job`), 0)
	})
}
