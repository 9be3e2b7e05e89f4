package api_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outboxd/outboxd/api"
)

// line is one row of the table of answers: what a submit of the same request, a
// status and a dispatch say about an operation in a state.
type line struct {
	place    string // as world.place has it
	tool     string
	status   string
	delivery string // after a status
	result   string
	reason   string
	attempts int

	submitted, asked, dispatched gated
}

type gated struct {
	gate, code string
	http, exit int
}

var (
	pendingLine = [3]gated{{"PASS", "PENDING", 200, 0}, {"PASS", "PENDING", 200, 1}, {"BLOCK", "OUTCOME_UNKNOWN", 200, 1}}
	okGate      = gated{"PASS", "OK", 200, 0}
)

func block(code string, submitted int) [3]gated {
	return [3]gated{{"BLOCK", code, submitted, 1}, {"BLOCK", code, 200, 1}, {"BLOCK", code, 200, 1}}
}

func table() []line {
	of := func(l line, g [3]gated) line {
		l.submitted, l.asked, l.dispatched = g[0], g[1], g[2]
		return l
	}
	fine := [3]gated{okGate, okGate, okGate}
	return []line{
		of(line{place: "pending", tool: opaque, status: "pending"}, pendingLine),
		of(line{place: "claimed", tool: opaque, status: "in_progress", attempts: 1}, pendingLine),
		of(line{place: "sending", tool: opaque, status: "in_progress", attempts: 1}, pendingLine),
		of(line{place: "waiting", tool: opaque, status: "waiting", attempts: 1, reason: "reapproval_required"}, block("APPROVAL_REQUIRED", 202)),
		of(line{place: "unknown", tool: opaque, status: "unknown", attempts: 1, reason: "unproven"}, block("OUTCOME_UNKNOWN", 200)),
		of(line{place: "asking", tool: queryable, status: "unknown", attempts: 1, reason: "unproven"}, block("OUTCOME_UNKNOWN", 200)),
		of(line{place: "delivered", tool: idempotent, status: "succeeded", attempts: 1, delivery: "local_replay", result: `{"mail":"<7>"}`}, fine),
		of(line{place: "receipt_reconciled", tool: queryable, status: "succeeded", attempts: 1, delivery: "receipt_reconciled", result: "null"}, fine),
		of(line{place: "resolved", tool: opaque, status: "succeeded", attempts: 1, delivery: "resolved", result: "null"}, fine),
		of(line{place: "dead", tool: opaque, status: "dead", attempts: 1, reason: "rejected"}, block("DEAD_LETTERED", 200)),
		of(line{place: "discarded", tool: opaque, status: "discarded", attempts: 1, reason: "discarded"}, block("DISCARDED", 200)),
	}
}

func TestEachStateIsAnsweredByTheTable(t *testing.T) {
	w := newWorld(t, script{})
	for _, l := range table() {
		t.Run(l.place, func(t *testing.T) {
			ref := w.place(l.tool, l.place, l.place)
			want := api.Answer{
				StatusRef: ref, Status: l.status, Reason: l.reason, Tool: l.tool, IdempotencyKey: l.place,
				Attempts: l.attempts, Delivery: l.delivery, Result: []byte(l.result),
			}
			if l.result == "" {
				want.Result = nil
			}
			l.checkAsked(t, w, want)
			l.checkSubmitted(t, w, want)
		})
	}
}

func (l line) checkAsked(t *testing.T, w *world, want api.Answer) {
	for _, ask := range []func() (api.Answer, error){
		func() (api.Answer, error) { return w.client.Status(context.Background(), want.StatusRef, 0) },
		func() (api.Answer, error) { return w.as(0).Status(context.Background(), want.StatusRef, 0) },
	} {
		got, err := ask()
		if err != nil {
			t.Fatalf("status of %s: %v", l.place, err)
		}
		want.Gate, want.Code = l.asked.gate, l.asked.code
		compare(t, "status", want, got)
		if exit := got.Exit(api.Asked); exit != l.asked.exit {
			t.Errorf("status of %s: exit %d, want %d", l.place, exit, l.asked.exit)
		}
	}
	res, _ := w.raw("GET", "/v1/operations/"+want.StatusRef, nil, "")
	if res.status != l.asked.http {
		t.Errorf("status of %s: HTTP %d, want %d", l.place, res.status, l.asked.http)
	}
}

func (l line) checkSubmitted(t *testing.T, w *world, want api.Answer) {
	got, err := w.client.Submit(context.Background(), aCase(l.tool, l.place), 0)
	if err != nil {
		t.Fatalf("submit of %s: %v", l.place, err)
	}
	want.Gate, want.Code = l.submitted.gate, l.submitted.code
	if want.Delivery != "" {
		want.Delivery = "local_replay"
	}
	compare(t, "submit", want, got)
	if exit := got.Exit(api.Submitted); exit != l.submitted.exit {
		t.Errorf("submit of %s: exit %d, want %d", l.place, exit, l.submitted.exit)
	}
	want.Gate, want.Code = l.dispatched.gate, l.dispatched.code
	compare(t, "dispatch", want, got.As(api.Dispatched))
	if exit := got.Exit(api.Dispatched); exit != l.dispatched.exit {
		t.Errorf("dispatch of %s: exit %d, want %d", l.place, exit, l.dispatched.exit)
	}
	res, _ := w.raw("POST", "/v1/operations", map[string]string{"Content-Type": "application/json"}, caseText(l.tool, l.place))
	if res.status != l.submitted.http {
		t.Errorf("submit of %s: HTTP %d, want %d", l.place, res.status, l.submitted.http)
	}
}

func compare(t *testing.T, what string, want, got api.Answer) {
	t.Helper()
	due := want.Status == "pending" || want.Status == "in_progress" || want.IdempotencyKey == "asking"
	if got.DueAt.IsZero() == due {
		t.Errorf("%s of %s: due at %s", what, want.IdempotencyKey, got.DueAt)
	}
	if p := got.Package; (p != nil) != (got.Status == "succeeded") || p != nil && (len(p.Verify()) > 0 || string(p.Result) != string(got.Result) || p.StatusRef != got.StatusRef) {
		t.Errorf("%s of %s: package %+v does not fit the answer", what, got.IdempotencyKey, p)
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(api.Answer{}, "DueAt", "Package")); d != "" {
		t.Errorf("%s of %s (-want +got):\n%s", what, want.IdempotencyKey, d)
	}
}

func caseText(tool, key string) string {
	return `{"principal":{"tenant_id":"acme","subject_id":"shop"},"call":{"tool_name":"` + tool +
		`","arguments":{"order":17}},"idempotency_key":"` + key + `"}`
}

func TestNewOperationIsAcceptedWith202(t *testing.T) {
	w := newWorld(t, script{})
	got, err := w.client.Submit(context.Background(), aCase(opaque, "order-1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got.Gate != api.Pass || got.Code != "ACCEPTED" || got.Status != "pending" || got.StatusRef == "" || got.DueAt.IsZero() {
		t.Errorf("got %+v, want PASS ACCEPTED pending", got)
	}
	again, err := w.client.Status(context.Background(), got.StatusRef, 0)
	if err != nil || !again.DueAt.Equal(got.DueAt) {
		t.Errorf("submit says due at %s, status %s (%v)", got.DueAt, again.DueAt, err)
	}
	res, body := w.raw("POST", "/v1/operations", map[string]string{"Content-Type": "application/json"}, caseText(opaque, "order-2"))
	if res.status != 202 {
		t.Errorf("got HTTP %d, want 202: %s", res.status, body)
	}
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	w := newWorld(t, script{})
	for _, ref := range []string{"0199c0de-0000-7000-8000-000000000000", "x", "%00", "..%2f.."} {
		_, err := w.client.Status(context.Background(), ref, 0)
		p := refused(t, "status of "+ref, err, 404, "NOT_FOUND")
		if p.Gate != api.Block || p.Exit() != 1 {
			t.Errorf("status of %s: gate %q, exit %d, want BLOCK, 1", ref, p.Gate, p.Exit())
		}
		_, err = w.client.Reconcile(context.Background(), ref)
		wants(t, "reconcile of "+ref, err, 404, "NOT_FOUND")
		_, err = w.client.Attempts(context.Background(), ref)
		wants(t, "attempts of "+ref, err, 404, "NOT_FOUND")
		_, err = w.client.List(context.Background(), api.Filter{After: ref})
		wants(t, "list after "+ref, err, 404, "NOT_FOUND")
	}
}

func TestSameKeyForAnotherRequestIsAConflictThatNamesFieldsOnly(t *testing.T) {
	w := newWorld(t, script{})
	w.accept(opaque, "order-1")
	other := aCase(opaque, "order-1")
	other.Call.Arguments = []byte(`{"order":"secret-18"}`)
	other.Session, other.Turn = "s", 1
	_, err := w.client.Submit(context.Background(), other, 0)
	p := refused(t, "submit of another request", err, 409, "IDEMPOTENCY_CONFLICT")
	if d := cmp.Diff([]string{"arguments", "session", "turn"}, p.Fields); d != "" {
		t.Errorf("fields (-want +got):\n%s", d)
	}
	if p.Gate != api.Block || p.Exit() != 1 {
		t.Errorf("gate %q, exit %d, want BLOCK, 1", p.Gate, p.Exit())
	}
}
