package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
	"github.com/outboxd/outboxd/poller"
)

// decide reviews one ref.
func (w *world) decide(action, ref string, more ...func(*api.Review)) (api.ReviewResult, error) {
	body := api.Review{Action: action, Refs: []string{ref}, Reason: "the downstream is well again"}
	for _, f := range more {
		f(&body)
	}
	return w.client.Review(context.Background(), body)
}

func applied(yes bool) func(*api.Review) {
	return func(b *api.Review) { b.Applied, b.Proof = &yes, []byte(`{"ticket":7}`) }
}

func risky(b *api.Review) { b.AcceptDuplicateRisk = true }

// Each action in each state: what it leads to, or the code of the refusal, which
// comes with the state at present.
func TestAReviewDoesWhatTheStateAllows(t *testing.T) {
	w := newWorld(t, script{})
	resolve := func(yes bool) func(string) error {
		return func(ref string) error { _, err := w.decide("resolve", ref, applied(yes)); return err }
	}
	actions := map[string]func(string) error{
		"retry":       func(ref string) error { _, err := w.decide("retry", ref); return err },
		"risk":        func(ref string) error { _, err := w.decide("retry", ref, risky); return err },
		"applied":     resolve(true),
		"not applied": resolve(false),
		"discard":     func(ref string) error { _, err := w.decide("discard", ref); return err },
		"cancel": func(ref string) error {
			_, err := w.client.Cancel(context.Background(), ref, "no longer wanted", "")
			return err
		},
	}
	for _, c := range []struct{ state, action, want string }{
		{"pending", "retry", "NOT_GIVEN_UP"}, {"pending", "discard", "NOT_GIVEN_UP"}, {"pending", "cancel", "discarded"},
		{"waiting", "retry", "NOT_GIVEN_UP"}, {"waiting", "cancel", "discarded"},
		{"claimed", "retry", "IN_PROGRESS"}, {"sending", "discard", "IN_PROGRESS"}, {"sending", "cancel", "IN_PROGRESS"},
		{"dead", "retry", "pending"}, {"dead", "discard", "discarded"}, {"dead", "applied", "NOT_UNKNOWN"},
		{"dead", "not applied", "NOT_UNKNOWN"}, {"dead", "cancel", "GIVEN_UP"},
		{"unknown", "retry", "DUPLICATE_RISK"}, {"unknown", "risk", "pending"}, {"unknown", "applied", "succeeded"},
		{"unknown", "not applied", "pending"}, {"unknown", "discard", "discarded"}, {"unknown", "cancel", "GIVEN_UP"},
		{"asking", "applied", "succeeded"},
		{"delivered", "retry", "ALREADY_DELIVERED"}, {"delivered", "discard", "ALREADY_DELIVERED"}, {"delivered", "cancel", "ALREADY_DELIVERED"},
		{"discarded", "retry", "ALREADY_DISCARDED"}, {"discarded", "applied", "ALREADY_DISCARDED"}, {"discarded", "cancel", "ALREADY_DISCARDED"},
	} {
		name := c.state + " " + c.action
		ref := w.place(opaque, name, c.state)
		before, _ := w.client.Status(context.Background(), ref, 0)
		err := actions[c.action](ref)
		after, _ := w.client.Status(context.Background(), ref, 0)
		if p, refused := errors.AsType[*api.Problem](err); refused {
			if p.Code != c.want || p.Status != 409 || p.State != before.Status || p.Exit() != 1 || after.Status != before.Status {
				t.Errorf("%s: got %+v and then %s, want 409 %s in state %s", name, p, after.Status, c.want, before.Status)
			}
			continue
		}
		if err != nil || after.Status != c.want {
			t.Errorf("%s: got %s, %v, want %s", name, after.Status, err, c.want)
		}
	}
	for ref, want := range map[string]int{"0": 404, "01900000-0000-7000-8000-000000000000": 404} {
		_, err := w.decide("retry", ref)
		wants(t, "retry of "+ref, err, want, "NOT_FOUND")
	}
	_, err := w.decide("retry", w.place(opaque, "other", "dead"), func(b *api.Review) { b.Tool = idempotent })
	wants(t, "retry as another tool's", err, 409, "OTHER_TOOL")
}

func TestAReviewIsRecordedAndTheHistoryGoesOn(t *testing.T) {
	w := newWorld(t, script{})
	ctx := context.Background()
	ref := w.place(opaque, "order-17", "dead")
	if _, err := w.decide("retry", ref, func(b *api.Review) { b.By = "ada" }); err != nil {
		t.Fatal(err)
	}
	d, err := w.client.Detail(ctx, ref)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Reviews) != 1 || len(d.Evidence) != 1 || d.Round != 2 || d.Failures != 0 || d.Attempts != 1 {
		t.Fatalf("got %+v, want the evidence kept, one review and a fresh second round", d)
	}
	if r := d.Reviews[0]; r.UID != os.Getuid() || r.By != "ada" || r.Action != "retry" || r.Before != entry.Dead || r.After != entry.Pending {
		t.Errorf("got %+v, want who, what and how it stood", r)
	}
	ref = w.place(opaque, "order-18", "unknown")
	if _, err := w.decide("resolve", ref, applied(true), func(b *api.Review) { b.Result = []byte(`{"id": 9}`) }); err != nil {
		t.Fatal(err)
	}
	a, err := w.client.Status(ctx, ref, 0)
	if err != nil || a.Delivery != "resolved" || string(a.Result) != `{"id":9}` {
		t.Errorf("got %+v, %v, want the result that was told", a, err)
	}
	if d, err = w.client.Detail(ctx, ref); err != nil || len(d.Reviews) != 1 || string(d.Reviews[0].Evidence) != `{"ticket":7}` {
		t.Errorf("got %+v, %v, want the evidence in the review", d.Reviews, err)
	}
	for name, f := range map[string]func(*api.Review){
		"no reason":        func(b *api.Review) { b.Reason = "" },
		"no action":        func(b *api.Review) { b.Action = "" },
		"refs and filter":  func(b *api.Review) { b.Filter = &api.ReviewFilter{} },
		"neither":          func(b *api.Review) { b.Refs = nil },
		"evidence":         func(b *api.Review) { b.Proof = []byte(`1`) },
		"resolve, no word": func(b *api.Review) { b.Action = "resolve" },
		"limit":            func(b *api.Review) { b.Limit = 1001 },
		"states":           func(b *api.Review) { b.Refs, b.Filter = nil, &api.ReviewFilter{States: []entry.State{"pending"}} },
	} {
		_, err := w.decide("retry", ref, f)
		wants(t, name, err, 422, "INPUT_INVALID")
	}
	_, err = w.as(os.Getuid()+1).Review(ctx, api.Review{Action: "discard", Refs: []string{ref}, Reason: "x"})
	wants(t, "a stranger's review", err, 403, "AUTHORIZATION_DENIED")
}

func TestAReviewWaitsForTheAttemptThatMayStillRun(t *testing.T) {
	w := newWorld(t, script{})
	a := w.accept(opaque, "order-17")
	ledgertest.Write(t, w.ledger, func(tx *ledger.Tx) error {
		h, err := take(tx, a.ID, true)
		if err == nil {
			_, err = h.Doubt(tx, entry.Doubt{Event: entry.Maybe, To: entry.Unknown, Reason: "unproven",
				Evidence: entry.Evidence{Kind: entry.Outcome, Phase: "sending", Class: "may_have_happened", Code: "timeout"}})
		}
		return err
	})
	_, err := w.decide("retry", a.StatusRef, risky)
	wants(t, "retry", err, 409, "ATTEMPT_RUNNING")
	_, err = w.decide("resolve", a.StatusRef, applied(false))
	wants(t, "resolve not applied", err, 409, "ATTEMPT_RUNNING")
	if _, err = w.decide("resolve", a.StatusRef, applied(true)); err != nil {
		t.Errorf("proof of the effect must not wait: %v", err)
	}
}

// Racing decisions about one entry: one of them wins, the others hear how it stands.
func TestOneOfRacingReviewsWins(t *testing.T) {
	rounds := 20
	if os.Getenv("OUTBOXD_CHAOS") == "full" {
		rounds = 200
	}
	w := newWorld(t, script{})
	for n := range rounds {
		ref := w.place(opaque, fmt.Sprintf("order-%d", n), "unknown")
		deeds := []func() error{
			func() error { _, err := w.decide("retry", ref, risky); return err },
			func() error { _, err := w.decide("retry", ref, risky); return err },
			func() error { _, err := w.decide("discard", ref); return err },
			func() error { _, err := w.decide("resolve", ref, applied(true)); return err },
			func() error { _, err := w.decide("resolve", ref, applied(false)); return err },
		}
		errs := make([]error, len(deeds))
		var all sync.WaitGroup
		for i, deed := range deeds {
			all.Go(func() { errs[i] = deed() })
		}
		all.Wait()
		winners := 0
		for _, err := range errs {
			p, refused := errors.AsType[*api.Problem](err)
			if err == nil {
				winners++
			} else if !refused || p.Status != 409 || p.State == "" {
				t.Errorf("round %d: got %v, want 409 with the state", n, err)
			}
		}
		d, err := w.client.Detail(context.Background(), ref)
		if err != nil || winners != 1 || len(d.Reviews) != 1 {
			t.Fatalf("round %d: %d winners and reviews %+v, %v, want one", n, winners, d.Reviews, err)
		}
	}
}

func TestABulkReviewIsCountedLimitedSpreadAndGoesOn(t *testing.T) {
	w := newWorld(t, script{})
	ctx := context.Background()
	for i := range 130 {
		w.place(opaque, fmt.Sprintf("order-%d", i), "dead")
	}
	w.place(opaque, "in doubt", "unknown")
	w.place(idempotent, "another tool's", "dead")
	body := api.Review{Action: "retry", Reason: "the bell is mended", Filter: &api.ReviewFilter{Tool: opaque}, Limit: 1000, DryRun: true}
	dry, err := w.client.Review(ctx, body)
	if err != nil || dry.Matched != 131 || dry.Done != 130 || dry.Refused["DUPLICATE_RISK"] != 1 {
		t.Fatalf("dry run: got %+v, %v, want 131 matched and one refused", dry, err)
	}
	if page, err := w.client.Dead(ctx, api.ReviewFilter{Tool: opaque}, 1000); err != nil || len(page.Letters) != 131 {
		t.Fatalf("a dry run left %d, %v, want 131", len(page.Letters), err)
	}
	body.DryRun, body.Limit = false, 60
	first, err := w.client.Review(ctx, body)
	if err != nil || first.Done != 60 || first.Next == "" {
		t.Fatalf("the first 60: got %+v, %v", first, err)
	}
	body.DueFrom, body.Limit = first.DueNext, 1000 // and not After: a second command begins anew
	rest, err := w.client.Review(ctx, body)
	if err != nil || rest.Matched != 71 || rest.Done != 70 || rest.Next != "" {
		t.Fatalf("the rest: got %+v, %v", rest, err)
	}
	list, err := w.client.List(ctx, api.Filter{States: []entry.State{entry.Pending}, Limit: 1000})
	if err != nil || len(list.Operations) != 130 {
		t.Fatalf("got %d pending, %v, want 130", len(list.Operations), err)
	}
	var due []time.Time
	for _, op := range list.Operations {
		due = append(due, op.DueAt)
	}
	slices.SortFunc(due, time.Time.Compare)
	for i := 1; i < len(due); i++ {
		if gap := due[i].Sub(due[i-1]); gap < 9*time.Millisecond {
			t.Fatalf("entries %d and %d are due %v apart, want 10ms", i-1, i, gap)
		}
	}
}

func TestLettersAreGroupedByTheirError(t *testing.T) {
	w := newWorld(t, script{})
	ctx := context.Background()
	for i := range 6 {
		ref := w.place(opaque, fmt.Sprintf("order-%d", i), "dead")
		excerpt := fmt.Sprintf("order %d of 0190aaaa-bbbb-7ccc-8ddd-%012x is gone", i*977, i)
		if i == 5 {
			excerpt = "no such bell"
		}
		w.alter(fmt.Sprintf(`UPDATE outbox_attempt SET excerpt = '%s' WHERE operation_id =
			(SELECT id FROM outbox_operation WHERE status_ref = '%s')`, excerpt, ref), `SELECT 1`)
	}
	g, err := w.client.DeadGroups(ctx, api.ReviewFilter{})
	if err != nil || len(g.Groups) != 2 || g.Groups[0].Dead != 5 || g.Groups[1].Dead != 1 {
		t.Fatalf("got %+v, %v, want groups of 5 and 1", g, err)
	}
	if got := g.Groups[0].Excerpt; got != "order # of # is gone" {
		t.Errorf("got excerpt %q", got)
	}
	r, err := w.client.Review(ctx, api.Review{Action: "discard", Reason: "they are gone",
		Filter: &api.ReviewFilter{Fingerprint: g.Groups[0].Fingerprint}})
	if err != nil || r.Done != 5 {
		t.Errorf("discard of the group: got %+v, %v, want 5", r, err)
	}
	page, err := w.client.Dead(ctx, api.ReviewFilter{}, 0)
	if err != nil || len(page.Letters) != 1 || page.Letters[0].Excerpt != "no such bell" {
		t.Errorf("left: got %+v, %v, want the other one", page, err)
	}
}

func TestAPurgedOperationIsToldFromOneThatNeverWas(t *testing.T) {
	w := newWorld(t, script{})
	ref := w.place(opaque, "order-17", "discarded")
	w.alter(`UPDATE outbox_entry SET changed_at = 1`, `SELECT 1`)
	if _, err := intake.Purge(context.Background(), w.ledger, intake.Retention{Discarded: time.Second, Delivered: time.Hour,
		Refused: time.Hour, Tombstone: time.Hour}); err != nil {
		t.Fatal(err)
	}
	w.place(opaque, "order-18", "dead")
	_, err := w.decide("discard", ref)
	wants(t, "discard of what was purged", err, 410, "ALREADY_PURGED")
}

// changed is the registry with another contract for the opaque tool.
func (w *world) changed(change func(*config.Tool)) {
	w.t.Helper()
	tool := ledgertest.Tool(opaque, entry.Opaque)
	change(&tool)
	work := &poller.Work{Handlers: w.work.Handlers, Registry: ledgertest.Registry(w.t,
		ledgertest.Tool(idempotent, entry.Idempotent), ledgertest.Tool(queryable, entry.Queryable), tool)}
	if err := w.poller.Swap(context.Background(), work); err != nil {
		w.t.Fatal(err)
	}
	w.work = work
}

func TestAnAcceptedContractIsWorkedUnder(t *testing.T) {
	calls := make(chan handler.Call, 10)
	w := newWorld(t, script{run: func(_ context.Context, c handler.Call) ([]byte, error) {
		calls <- c
		return nil, nil
	}})
	ctx := context.Background()
	w.changed(func(tool *config.Tool) { tool.Effect = string(entry.Idempotent) })
	other := w.place(opaque, "order-19", "dead")
	w.changed(func(tool *config.Tool) {})
	_, err := w.decide("retry", other, func(b *api.Review) { b.AcceptContract = true })
	wants(t, "another effect class", err, 409, "CONTRACT_DRIFT")
	ref := w.place(opaque, "order-17", "dead")
	w.changed(func(tool *config.Tool) { tool.Revisions.Input = "orders-2" })
	_, err = w.decide("retry", ref)
	wants(t, "retry after the contract changed", err, 409, "CONTRACT_DRIFT")
	if d, err := w.client.Detail(ctx, ref); err != nil || d.Drift != "input_revision" {
		t.Errorf("detail: got drift %q, %v", d.Drift, err)
	}
	if _, err := w.decide("retry", ref, func(b *api.Review) { b.AcceptContract = true }); err != nil {
		t.Fatal(err)
	}
	w.run()
	a, err := w.client.Status(ctx, ref, 10*time.Second)
	if err != nil || a.Status != "succeeded" || len(calls) != 1 {
		t.Fatalf("got %+v, %v and %d calls, want it done under the accepted contract", a, err, len(calls))
	}
	var reply api.Answer
	reply, err = w.client.Submit(ctx, aCase(opaque, "order-17"), 0)
	if err != nil || reply.StatusRef != ref || reply.Delivery != "local_replay" {
		t.Errorf("the same request under the accepted contract: got %+v, %v, want the first one's answer", reply, err)
	}
	w.changed(func(tool *config.Tool) { tool.Revisions.Input = "orders-3" })
	_, err = w.client.Submit(ctx, aCase(opaque, "order-17"), 0)
	wants(t, "the same request under a third contract", err, 409, "IDEMPOTENCY_CONFLICT")
}

func TestDetailSaysWhyAnOperationDoesNotRun(t *testing.T) {
	block := make(chan struct{})
	w := newWorld(t, script{run: func(ctx context.Context, _ handler.Call) ([]byte, error) {
		select {
		case <-block:
		case <-ctx.Done():
		}
		return nil, nil
	}})
	defer close(block)
	ctx := context.Background()
	why := func(what, ref, want string) {
		t.Helper()
		d, err := w.client.Detail(ctx, ref)
		if err != nil || !slices.ContainsFunc(d.Waits, func(x api.WaitReason) bool { return x.Code == want }) {
			b, _ := json.Marshal(d.Waits)
			t.Errorf("%s: got %s, %v, want %s", what, b, err, want)
		}
	}
	for state, want := range map[string]string{"dead": "needs_review", "unknown": "held", "asking": "not_due",
		"waiting": "approval_required", "sending": "in_progress", "pending": "no_daemon"} {
		why(state, w.place(queryable, state, state), want)
	}
	if _, err := w.client.Pause(ctx, idempotent, "neighbours"); err != nil {
		t.Fatal(err)
	}
	w.changed(func(tool *config.Tool) { tool.Concurrency = 1 })
	w.run()
	first := w.accept(opaque, "first")
	w.poller.Wake()
	if a, err := w.client.Status(ctx, first.StatusRef, 0); err != nil {
		t.Fatal(a, err)
	}
	why("paused", w.place(idempotent, "paused", "pending"), "tool_paused")
	second := w.accept(opaque, "second")
	w.poller.Wake()
	deadline := time.Now().Add(10 * time.Second)
	for d := (api.Detail{}); !slices.ContainsFunc(d.Waits, func(x api.WaitReason) bool { return x.Code == "tool_slots_full" }); {
		var err error
		if d, err = w.client.Detail(ctx, second.StatusRef); err != nil || time.Now().After(deadline) {
			t.Fatalf("behind another one: got %+v, %v, want tool_slots_full", d.Waits, err)
		}
	}
	if d, err := w.client.Detail(ctx, w.place(queryable, "done", "delivered")); err != nil || len(d.Waits) != 0 {
		t.Errorf("delivered: got %+v, %v, want nothing", d.Waits, err)
	}
}

func TestNothingIsReviewedInAHold(t *testing.T) {
	w := newWorld(t, script{})
	dead, pending := w.place(opaque, "order-17", "dead"), w.place(opaque, "order-18", "pending")
	ledgertest.Write(t, w.ledger, func(tx *ledger.Tx) error { return tx.Hold(0) })
	_, err := w.decide("retry", dead)
	wants(t, "retry", err, 503, "HELD")
	_, err = w.decide("discard", dead)
	wants(t, "discard", err, 503, "HELD")
	_, err = w.client.Review(context.Background(), api.Review{Action: "discard", Reason: "x", Filter: &api.ReviewFilter{}})
	wants(t, "bulk", err, 503, "HELD")
	d, err := w.client.Detail(context.Background(), pending)
	if err != nil || len(d.Waits) == 0 || d.Waits[0].Code != "database_held" {
		t.Errorf("detail: got %+v, %v, want database_held first", d.Waits, err)
	}
}
