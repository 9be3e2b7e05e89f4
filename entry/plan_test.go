package entry

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/ledger"
)

// Each hot statement finds its rows by a key or an index, and sorts nothing.
func TestHotStatementsSearch(t *testing.T) {
	l, err := ledger.Open(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), ledger.Options{Create: true})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	const byID = "SEARCH outbox_entry USING INTEGER PRIMARY KEY (rowid=?)"
	for _, c := range []struct {
		name, query string
		args        int
		want        string
	}{
		{"claim", claimSQL, 8, byID},
		{"move", moveSQL, 17, byID},
		{"give up", giveUpSQL, 17, byID},
		{"new round", newRoundSQL, 6, byID},
		{"probe", probeSQL, 5, "SEARCH outbox_entry USING INDEX outbox_entry_due (tool_name=? AND due_at<?)"},
		{"next due", nextDueSQL, 2, "SEARCH outbox_entry USING COVERING INDEX outbox_entry_due (tool_name=? AND due_at>?)"},
		{"renew", renewSQL, 3, byID},
		{"lapse", lapseSQL, 4, byID},
		{"retrying", retryingSQL, 4, "SEARCH outbox_entry USING INDEX outbox_entry_due (tool_name=? AND due_at>?)"},
		{"reschedule", rescheduleSQL, 5, byID},
		{"nearer", nearerSQL, 5, "SEARCH e USING INDEX outbox_entry_due (tool_name=? AND due_at>?)"},
		// Every row that is due is looked at, at the start and at a sweep: in a
		// read, which nobody waits for.
		{"may still run, leased", leasedLateSQL, 2, "SCAN outbox_entry USING INDEX outbox_entry_due"},
		{"may still run, unknown", unknownLateSQL, 2, "SEARCH outbox_entry USING INDEX outbox_entry_kept (state=?)"},
		{"later", laterSQL, 3, byID},
		{"leased", leasedSQL, 0, "SCAN outbox_entry USING INDEX outbox_entry_due"},
	} {
		plan := explain(t, l, c.query, c.args)
		if !strings.Contains(plan, c.want) {
			t.Errorf("%s: got plan\n%swant in it %s", c.name, plan, c.want)
		}
		if strings.Contains(plan, "TEMP B-TREE") || (strings.Contains(plan, "SCAN outbox_entry") && !strings.HasPrefix(c.want, "SCAN")) {
			t.Errorf("%s: scans or sorts:\n%s", c.name, plan)
		}
	}
}

func explain(t *testing.T, l *ledger.Ledger, query string, args int) string {
	t.Helper()
	var plan strings.Builder
	err := l.Read(t.Context(), func(v *ledger.View) error {
		return v.Each(func(r *ledger.Row) error {
			var id, parent, unused int64
			var detail string
			err := r.Scan(&id, &parent, &unused, &detail)
			plan.WriteString("  " + detail + "\n")
			return err
		}, `EXPLAIN QUERY PLAN `+query, make([]any, args)...)
	})
	if err != nil {
		t.Fatalf("explain %s: %v", query, err)
	}
	return plan.String()
}
