package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// planned gives the plan of a statement, a step on each line.
func planned(t *testing.T, l *ledger.Ledger, statement string) string {
	t.Helper()
	var steps []string
	args := make([]any, strings.Count(statement, "?"))
	for i := len(args); i > 0 && !strings.Contains(statement, fmt.Sprintf("?%d", i)) && strings.Contains(statement, "?1"); i-- {
		args = args[:i-1]
	}
	ledgertest.Read(t, l, func(v *ledger.View) error {
		return v.Each(func(r *ledger.Row) error {
			var id, parent, unused int64
			var step string
			err := r.Scan(&id, &parent, &unused, &step)
			steps = append(steps, step)
			return err
		}, "EXPLAIN QUERY PLAN "+statement, args...)
	})
	return strings.Join(steps, "\n")
}

func TestStatementsUseTheirIndexes(t *testing.T) {
	l := ledgertest.Open(t)
	for name, want := range map[string][]string{
		"status":   {"SEARCH o USING INDEX sqlite_autoindex_outbox_operation_1 (status_ref=?)", "SEARCH e USING INTEGER PRIMARY KEY", "SEARCH r USING INTEGER PRIMARY KEY"},
		"kept":     {"SEARCH e USING INDEX outbox_entry_kept (state=? AND operation_id>?)", "SEARCH o USING INTEGER PRIMARY KEY"},
		"live":     {"SCAN l USING INDEX outbox_entry_due", "SEARCH o USING INTEGER PRIMARY KEY"},
		"tool":     {"SEARCH l USING INDEX outbox_entry_due (tool_name=? AND due_at>?)", "SEARCH o USING INTEGER PRIMARY KEY"},
		"order":    {"SEARCH o USING INTEGER PRIMARY KEY (rowid>?)", "SEARCH e USING INTEGER PRIMARY KEY"},
		"scope":    {"SEARCH o USING INDEX sqlite_autoindex_outbox_operation_2 (tenant_id=? AND subject_id=? AND tool_name=? AND idempotency_key=?"},
		"key":      {"SEARCH o USING INTEGER PRIMARY KEY (rowid=?)", "SCAN k USING COVERING INDEX sqlite_autoindex_outbox_operation_2"},
		"refused":  {"SEARCH outbox_refused USING INTEGER PRIMARY KEY (rowid>?)"},
		"attempts": {"SEARCH outbox_attempt USING INDEX outbox_attempt_operation (operation_id=?)"},
	} {
		plan := planned(t, l, api.Statements[name])
		for _, step := range want {
			if !strings.Contains(plan, step) {
				t.Errorf("%s: want %q in the plan\n%s", name, step, plan)
			}
		}
		for _, line := range strings.Split(plan, "\n") {
			sorts := strings.Contains(line, "TEMP B-TREE") && !slices.Contains([]string{"live", "tool", "attempts"}, name)
			scans := strings.HasPrefix(line, "SCAN") && !strings.Contains(line, "INDEX") && !slices.Contains(small, line)
			if sorts || scans {
				t.Errorf("%s: %q in the plan\n%s", name, line, plan)
			}
		}
	}
}

// small are the scans of what the statement itself has made.
var small = []string{"SCAN scope", "SCAN page", "SCAN json_each VIRTUAL TABLE", "SCAN (subquery-1)"}

// everything places two operations in each state and gives their references in
// the order of acceptance, with their states.
func everything(w *world) (refs []string, states map[string]entry.State) {
	states = map[string]entry.State{}
	for _, l := range table() {
		for i := range 2 {
			ref := w.place(l.tool, fmt.Sprintf("%s-%d", l.place, i), l.place)
			refs = append(refs, ref)
			state := entry.State(l.place)
			switch l.place {
			case "asking":
				state = entry.Unknown
			case "receipt_reconciled", "resolved":
				state = entry.Delivered
			}
			states[ref] = state
		}
	}
	return refs, states
}

// pages walks through a list.
func (w *world) pages(f api.Filter) (all []api.Item) {
	w.t.Helper()
	for {
		p, err := w.client.List(context.Background(), f)
		if err != nil {
			w.t.Fatalf("list %+v: %v", f, err)
		}
		if len(p.Operations) > f.Limit && f.Limit > 0 {
			w.t.Errorf("a page of %d, limit %d", len(p.Operations), f.Limit)
		}
		all = append(all, p.Operations...)
		if f.After = p.Next; f.After == "" {
			return all
		}
	}
}

func TestPagesOfAListAreTheWholeListInOrder(t *testing.T) {
	w := newWorld(t, script{})
	refs, states := everything(w)
	filters := []api.Filter{{}, {Tool: opaque}, {States: entry.States}}
	for i, s := range entry.States {
		filters = append(filters, api.Filter{States: []entry.State{s}},
			api.Filter{States: []entry.State{s, entry.States[(i+3)%len(entry.States)]}, Tool: opaque})
	}
	for _, f := range filters {
		var want []string
		for _, ref := range refs {
			a, err := w.client.Status(context.Background(), ref, 0)
			if err != nil {
				t.Fatal(err)
			}
			if (len(f.States) == 0 || slices.Contains(f.States, states[ref])) && (f.Tool == "" || f.Tool == a.Tool) {
				want = append(want, ref)
			}
		}
		for _, limit := range []int{0, 1, 3, 1000} {
			f.Limit = limit
			var got []string
			for _, op := range w.pages(f) {
				got = append(got, op.StatusRef)
				if op.State != states[op.StatusRef] {
					t.Errorf("%s is listed as %s, want %s", op.StatusRef, op.State, states[op.StatusRef])
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("list %+v (-want +got):\n%s", f, d)
			}
		}
	}
}

func TestItemsOfAListAreAnswersWithoutResults(t *testing.T) {
	w := newWorld(t, script{})
	ref := w.place(idempotent, "order-1", "delivered")
	_, body := w.raw("GET", "/v1/operations", nil, "")
	for _, want := range []string{`"status_ref":"` + ref, `"status":"succeeded"`, `"gate":"PASS"`, `"code":"OK"`, `"state":"delivered"`,
		`"tenant_id":"acme"`, `"subject_id":"shop"`, `"accepted_at":"2`} {
		if !strings.Contains(body, want) {
			t.Errorf("want %s in %s", want, body)
		}
	}
	if strings.Contains(body, `"result"`) || strings.Contains(body, `"delivery"`) || strings.Contains(body, `"next"`) {
		t.Errorf("a result, a delivery or a next page in %s", body)
	}
	if _, body = w.raw("GET", "/v1/operations?state=dead", nil, ""); body != `{"operations":[]}`+"\n" {
		t.Errorf("an empty list is %s", body)
	}
}

func TestOneOperationIsFoundByToolAndKey(t *testing.T) {
	w := newWorld(t, script{})
	ref := w.place(opaque, "order-1", "dead")
	for _, f := range []api.Filter{
		{Tool: opaque, Key: "order-1"},
		{Tool: opaque, Key: "order-1", Tenant: "acme"},
		{Tool: opaque, Key: "order-1", Tenant: "acme", Subject: "shop"},
		{Tool: opaque, Key: "order-1", States: []entry.State{"dead", "delivered"}},
	} {
		if a, err := w.client.Find(context.Background(), f); err != nil || a.StatusRef != ref || a.Code != "DEAD_LETTERED" {
			t.Errorf("find %+v: got %+v, %v", f, a, err)
		}
	}
	for _, f := range []api.Filter{
		{Tool: opaque, Key: "order-2"}, {Tool: idempotent, Key: "order-1"}, {Tool: opaque, Key: "order-1", Tenant: "globex"},
		{Tool: opaque, Key: "order-1", States: []entry.State{"pending"}},
	} {
		_, err := w.client.Find(context.Background(), f)
		wants(t, fmt.Sprintf("find %+v", f), err, 404, "NOT_FOUND")
	}
	other := aCase(opaque, "order-1")
	other.Principal.Subject = "ops"
	if _, err := w.client.Submit(context.Background(), other, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Find(context.Background(), api.Filter{Tool: opaque, Key: "order-1"}); !errors.Is(err, api.ErrAmbiguous) {
		t.Errorf("find one of two: got %v, want ErrAmbiguous", err)
	}
}

func TestAKeyAloneSelectsItsOperationsOfAllTools(t *testing.T) {
	w := newWorld(t, script{})
	shops(w)
	one, two := w.place(opaque, "order-1", "dead"), w.place(idempotent, "order-1", "pending")
	three := w.place(queryable, "order-1", "pending")
	w.accept(opaque, "order-2")
	for uid, want := range map[int][]string{0: {one, two, three}, acmeUID: {one, two, three}, shopUID: {one, two}, otherUID: nil} {
		page, err := w.as(uid).List(context.Background(), api.Filter{Key: "order-1"})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, op := range page.Operations {
			got = append(got, op.StatusRef)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("uid %d (-want +got):\n%s", uid, d)
		}
	}
	page, err := w.as(0).List(context.Background(), api.Filter{Key: "order-1", Tenant: "acme", Subject: "shop", States: []entry.State{"dead"}})
	if err != nil || len(page.Operations) != 1 || page.Operations[0].StatusRef != one {
		t.Errorf("got %+v (%v), want %s alone", page, err, one)
	}
}

func TestMisspeltFiltersDoNotMeanEverything(t *testing.T) {
	w := newWorld(t, script{})
	for _, q := range []string{
		"stat=dead", "state=dea", "state=Dead", "limit=0", "limit=1001", "limit=x", "limit=-1", "tenant=acme", "tool=a&subject=b",
		"tool=a&tool=b", "limit=1;after=x", "wait=1s", "after=%zz", "limit=5&limit=6",
	} {
		_, body := w.raw("GET", "/v1/operations?"+q, nil, "")
		if !strings.Contains(body, `"INPUT_INVALID"`) {
			t.Errorf("list?%s: got %s, want INPUT_INVALID", q, body)
		}
	}
	ref := w.accept(opaque, "order-1").StatusRef
	for _, q := range []string{"wait=1", "wait=-1s", "wait=2h", "wait=x", "Wait=1s", "wait=1s&wait=2s"} {
		_, body := w.raw("GET", "/v1/operations/"+ref+"?"+q, nil, "")
		if !strings.Contains(body, `"INPUT_INVALID"`) {
			t.Errorf("status?%s: got %s, want INPUT_INVALID", q, body)
		}
	}
	if res, body := w.raw("GET", "/v1/operations?state="+url.QueryEscape("dead,unknown")+"&state=pending", nil, ""); res.status != 200 {
		t.Errorf("several states: %s", body)
	}
}
