package poller_test

import (
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/guard"
)

// guardedBy gives the tools of a world guards, and a principal with these roles.
func guardedBy(t *testing.T, w *world, k kit, roles []string, guards ...config.Guard) {
	t.Helper()
	c := k.Tool
	c.Guards = guards
	next := work(t, kit{c, k.outside})
	set, err := guard.Build(c, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	next.Guards = map[string]*guard.Set{c.Name: set}
	next.Roles = guard.Configured{{UID: 7, MaySubmit: []config.Scope{{Tenant: "acme", Subject: "*"}}, Roles: roles}}
	must(t, w.poller.Swap(t.Context(), next))
}

func static(roles ...string) config.Guard {
	return config.Guard{Purpose: "authorize", Static: &config.StaticGuard{Roles: roles}}
}

func TestARoleThatIsRevokedAfterTheAcceptStopsTheEffect(t *testing.T) {
	for _, effect := range []entry.Effect{entry.Idempotent, entry.Queryable, entry.Opaque} {
		t.Run(string(effect), func(t *testing.T) {
			story(t, func(t *testing.T) {
				o := &outside{}
				if effect == entry.Queryable {
					o.ask = neverAsked(t)
				}
				k := tool("refund", effect, o, every(time.Minute), func(c *config.Tool) { c.Retry.MaxAttempts = 3 })
				w := open(t, options{}, k).run()
				guardedBy(t, w, k, []string{"clerk"}, static("clerk"))
				must(t, w.poller.Pause(t.Context(), "refund", "revocation"))
				id := w.accept("refund", "order-17")
				guardedBy(t, w, k, nil, static("clerk"))
				must(t, w.poller.Resume(t.Context(), "refund"))
				pass(70 * time.Second)
				equal(t, "failures", w.expect(id, entry.Pending, "").Failures, 2)
				guardedBy(t, w, k, []string{"clerk"}, static("clerk"))
				pass(time.Minute)
				w.expect(id, entry.Delivered, "")
				guardedBy(t, w, k, nil, static("clerk"))
				second := w.accept("refund", "order-18")
				pass(10 * time.Minute)
				w.expect(second, entry.Dead, guard.Denied)
				equal(t, "requests", len(o.called()), 1)
			})
		})
	}
}

func TestARestrictedFileIsAskedBeforeEachEffect(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: always(errLost)}
		k := tool("refund", entry.Idempotent, o, every(time.Minute), func(c *config.Tool) { c.Retry.MaxAttempts = 3 })
		w := shop(t, k).run()
		guardedBy(t, w, k, nil, config.Guard{Purpose: "validate", SQL: &config.SQLGuard{
			Select: `SELECT NOT EXISTS (SELECT 1 FROM outbox_attempt AS a JOIN outbox_operation AS o ON o.id = a.operation_id WHERE o.status_ref = :status_ref)`}})
		id := w.accept("refund", "order-17")
		pass(10 * time.Minute)
		w.expect(id, entry.Unknown, guard.Failed) // the first send is unproven: not dead
		equal(t, "requests", len(o.called()), 1)
	})
}

func TestASQLGuardOfALocalToolSeesItsTransaction(t *testing.T) {
	k := sqlTool(t, "job", insertJob)
	k.Tool.Retry.MaxAttempts = 1
	story(t, func(t *testing.T) {
		w := shop(t, k).run()
		guardedBy(t, w, k, nil, config.Guard{Purpose: "validate", SQL: &config.SQLGuard{Select: `SELECT count(*) < 3 FROM job`}})
		ids := w.acceptMany("job", 10)
		pass(time.Minute)
		delivered := 0
		for _, id := range ids {
			if w.entry(id).State == entry.Delivered {
				delivered++
				continue
			}
			w.expect(id, entry.Dead, guard.Failed)
		}
		equal(t, "delivered", delivered, 3)
		equal(t, "jobs", w.count(`SELECT count(*) FROM job`), 3)
	})
}
