package poller_test

import (
	"testing"
	"time"

	"github.com/outboxd/outboxd/entry"
)

// A reload either fails and changes nothing, or is in force: what it does to the
// file afterwards is the next pass's to do, as often as it takes.
func TestASwapThatIsInForceIsNotReportedAsFailed(t *testing.T) {
	story(t, func(t *testing.T) {
		later := &outside{}
		w := open(t, options{}, tool("mail", entry.Idempotent, &outside{})).run()
		c := foreign(t, w.path)
		exec(t, c, `INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)
			VALUES ('acme', 'shop', 'later', 'order-1', '{}')`)
		pass(5 * time.Second)
		exec(t, c, `CREATE TRIGGER broken BEFORE UPDATE ON outbox_intake BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		snapshot := work(t, tool("later", entry.Idempotent, later))
		must(t, w.poller.Swap(t.Context(), snapshot))
		equal(t, "snapshot", w.poller.Work(), snapshot)
		pass(5 * time.Second)
		equal(t, "requests while the file refuses", len(later.called()), 0)
		exec(t, c, `DROP TRIGGER broken`)
		pass(5 * time.Second)
		equal(t, "requests", len(later.called()), 1)
	})
}
