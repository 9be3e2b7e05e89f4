package poller_test

import (
	"context"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// A changed backoff reaches what waits already: it is due when it would be had the
// new policy been there at its last failure.
func TestAChangedBackoffReachesEntriesThatWait(t *testing.T) {
	for _, c := range []struct {
		name     string
		old, new func(*config.Tool)
		first    time.Duration // from the first failure to the next call
	}{
		{"shorter", every(time.Hour), every(20 * time.Minute), 20 * time.Minute},
		{"over already", every(time.Hour), every(time.Minute), 10 * time.Minute},
		{"longer", every(20 * time.Minute), every(time.Hour), time.Hour},
		{"the same", every(time.Hour), every(time.Hour), time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			story(t, func(t *testing.T) {
				o := &outside{do: always(handler.Again(errLost, -1))}
				bystander := &outside{do: always(handler.Again(errLost, -1))}
				w := open(t, options{}, tool("refund", entry.Idempotent, o, c.old), tool("mail", entry.Idempotent, bystander, every(time.Hour))).run()
				w.accept("refund", "order-17")
				w.accept("mail", "order-17")
				pass(10 * time.Minute)
				must(t, w.poller.Swap(t.Context(), work(t, tool("refund", entry.Idempotent, o, c.new), tool("mail", entry.Idempotent, bystander, every(time.Hour)))))
				pass(65 * time.Minute)
				if gaps := o.gaps(); len(gaps) == 0 || gaps[0].Round(time.Second) != c.first {
					t.Errorf("times between the calls are %v, want the first to be %s", gaps, c.first)
				}
				if gaps := bystander.gaps(); len(gaps) != 1 || gaps[0].Round(time.Second) != time.Hour {
					t.Errorf("of a tool that was not changed they are %v, want 1h", gaps)
				}
			})
		})
	}
}

// A reload moves each entry to where the new policy puts it, and one that comes
// before the one before it is done finds them all.
func TestAChangedBackoffKeepsItsSpreadOverSeveralReloads(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: always(handler.Again(errLost, -1))}
		spread := func(d time.Duration) kit {
			return tool("refund", entry.Idempotent, o, every(d), func(c *config.Tool) { c.Retry.Jitter = "equal" })
		}
		w := open(t, options{concurrency: 100}, spread(time.Hour)).run()
		const entries = 1200
		ids := w.acceptMany("refund", entries)
		pass(time.Minute)
		equal(t, "calls before", len(o.called()), entries)
		c := foreign(t, w.path)
		exec(t, c, `CREATE TRIGGER refused BEFORE UPDATE OF due_at ON outbox_entry
			WHEN OLD.due_at > (SELECT MAX(due_at) FROM outbox_entry) - 1000 BEGIN SELECT RAISE(ABORT, 'refused'); END`)
		must(t, w.poller.Swap(t.Context(), work(t, spread(30*time.Minute))))
		pass(time.Second) // the last page does not get through
		exec(t, c, `DROP TRIGGER refused`)
		must(t, w.poller.Swap(t.Context(), work(t, spread(10*time.Minute))))
		pass(time.Second)
		distinct := map[time.Time]bool{}
		for _, id := range ids {
			if wait := waits(w, id); wait < 5*time.Minute || wait >= 10*time.Minute {
				t.Fatalf("entry %d waits %s, want 5m to less than 10m", id, wait)
			}
			distinct[w.entry(id).DueAt] = true
		}
		if len(distinct) < entries/2 {
			t.Errorf("%d entries are due at %d instants: the spread is lost", entries, len(distinct))
		}
	})
}

// What the downstream asked for is honoured within the cap of today, and questions
// come sooner, too.
func TestAChangedBackoffKeepsARetryAfterWithinItsCap(t *testing.T) {
	story(t, func(t *testing.T) {
		asked := &outside{do: always(handler.Again(errLost, 2*time.Hour))}
		lost := &outside{do: always(errLost), ask: func(context.Context, handler.Call, int) handler.Answer {
			return handler.Answer{Found: handler.NoAnswer, Code: "dns"}
		}}
		policy := func(initial, most time.Duration) func(*config.Tool) {
			return func(c *config.Tool) {
				c.Retry.Backoff, c.Retry.Initial, c.Retry.Max, c.Retry.MaxQueries = "constant", initial, most, 100
			}
		}
		kits := func(change func(*config.Tool)) []kit {
			return []kit{tool("refund", entry.Idempotent, asked, change), tool("pay", entry.Queryable, lost, change)}
		}
		w := open(t, options{}, kits(policy(time.Hour, 3*time.Hour))...).run()
		id, unknown := w.accept("refund", "order-17"), w.accept("pay", "order-17")
		pass(10 * time.Minute)
		for _, step := range []struct{ most, want time.Duration }{{150 * time.Minute, 2 * time.Hour}, {time.Hour, time.Hour}} {
			must(t, w.poller.Swap(t.Context(), work(t, kits(policy(30*time.Minute, step.most))...)))
			pass(time.Second)
			equal(t, "wait of what was asked for", waits(w, id), step.want)
			equal(t, "wait of a question", waits(w, unknown), 30*time.Minute)
		}
	})
}

// waits is how long an entry waits from its last move on.
func waits(w *world, id int64) (wait time.Duration) {
	w.t.Helper()
	ledgertest.Read(w.t, w.ledger, func(v *ledger.View) error {
		var at, since time.Time
		err := v.One(`SELECT due_at, changed_at FROM outbox_entry WHERE operation_id = ?`, id).Scan(&at, &since)
		wait = at.Sub(since)
		return err
	})
	return wait
}
