package api_test

import (
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
	"github.com/outboxd/outboxd/poller"
)

// clerkUID and guestUID may both submit for acme and shop; one is a clerk.
const (
	clerkUID = 12101
	guestUID = 12102
)

// guarded is a world whose tools have these guards, with a clerk and a guest.
func guarded(t *testing.T, s script, guards ...config.Guard) *world {
	t.Helper()
	w := newWorld(t, s)
	tool := ledgertest.Tool(idempotent, entry.Idempotent)
	tool.Guards = guards
	w.principals("clerk")
	w.work.Registry = ledgertest.Registry(t, tool, ledgertest.Tool(queryable, entry.Queryable), ledgertest.Tool(opaque, entry.Opaque))
	defaults := config.Default()
	tool, _ = defaults.Tool(tool)
	set, err := guard.Build(tool, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	w.work = &poller.Work{Registry: w.work.Registry, Handlers: w.work.Handlers, Guards: map[string]*guard.Set{idempotent: set}, Roles: w.clerks("clerk")}
	if err := w.poller.Swap(context.Background(), w.work); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) clerks(roles ...string) guard.Configured {
	scope := []config.Scope{{Tenant: "acme", Subject: "shop"}}
	return guard.Configured{{Name: "clerk", UID: clerkUID, MaySubmit: scope, Roles: roles}, {Name: "guest", UID: guestUID, MaySubmit: scope}}
}

// principals gives the clerk these roles.
func (w *world) principals(roles ...string) {
	w.api.Swap(api.NewAccess(config.Operators{UIDs: []int{0}}, w.clerks(roles...)))
}

func clerksOnly() config.Guard {
	return config.Guard{Purpose: "authorize", Static: &config.StaticGuard{Roles: []string{"clerk"}}}
}

func TestARoleIsTheCallersOwnAndOfThisMoment(t *testing.T) {
	w := guarded(t, script{run: func(context.Context, handler.Call) ([]byte, error) { return []byte(`{"sent":1}`), nil }}, clerksOnly())
	ctx := context.Background()
	_, err := w.as(guestUID).Submit(ctx, aCase(idempotent, "order-1"), 0)
	wants(t, "guest, though the clerk has the role for this scope", err, 403, "AUTHORIZATION_DENIED")
	a, err := w.as(clerkUID).Submit(ctx, aCase(idempotent, "order-1"), 0)
	if err != nil || a.Code != "ACCEPTED" {
		t.Fatalf("clerk: got %+v, %v", a, err)
	}
	w.run()
	if a, err = w.as(clerkUID).Status(ctx, a.StatusRef, 20*time.Second); err != nil || a.Code != "OK" {
		t.Fatalf("clerk's status: got %+v, %v", a, err)
	}
	_, err = w.as(guestUID).Status(ctx, a.StatusRef, 0)
	wants(t, "guest's status", err, 404, "NOT_FOUND")
	if page, err := w.as(guestUID).List(ctx, api.Filter{}); err != nil || len(page.Operations) != 0 {
		t.Errorf("guest's list: got %+v, %v", page, err)
	}
	w.principals() // the clerk is none any more
	_, err = w.as(clerkUID).Status(ctx, a.StatusRef, 0)
	wants(t, "status after the role is gone", err, 404, "NOT_FOUND")
	_, err = w.as(clerkUID).Submit(ctx, aCase(idempotent, "order-1"), 0)
	wants(t, "replay after the role is gone", err, 403, "AUTHORIZATION_DENIED")
	if a, err := w.as(0).Status(ctx, a.StatusRef, 0); err != nil || a.Code != "OK" {
		t.Errorf("operator's status: got %+v, %v", a, err)
	}
}

func TestWhatMakesNoSenseIsNotAcceptedAndAReplayNeedNotMakeSenseAgain(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := guarded(t, script{}, config.Guard{Purpose: "validate", Exec: &config.Exec{Argv: []string{"/usr/bin/test", "-e", gate}}})
	ctx := context.Background()
	first, err := w.as(clerkUID).Submit(ctx, aCase(idempotent, "order-1"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(gate); err != nil {
		t.Fatal(err)
	}
	_, err = w.as(clerkUID).Submit(ctx, aCase(idempotent, "order-2"), 0)
	wants(t, "a new one", err, 412, "PRECONDITION_FAILED")
	again, err := w.as(clerkUID).Submit(ctx, aCase(idempotent, "order-1"), 0)
	if err != nil || again.StatusRef != first.StatusRef || again.Code != "PENDING" {
		t.Errorf("a repetition: got %+v, %v", again, err)
	}
}

func TestAQuestionIsNotPutForWhoMayNotOrUnderAnotherContract(t *testing.T) {
	asked := 0
	w := newWorld(t, script{ask: func(context.Context, handler.Call) handler.Answer {
		asked++
		return handler.Answer{Found: handler.Applied}
	}})
	ref := w.place(queryable, "order-1", "unknown")
	ctx := context.Background()
	w.principals()
	_, err := w.as(otherUID).Reconcile(ctx, ref)
	wants(t, "a stranger", err, 404, "NOT_FOUND")
	restore := w.alter(`UPDATE outbox_operation SET arguments = '{"order":18}'`, `UPDATE outbox_operation SET arguments = '{"order":17}'`)
	_, err = w.as(0).Reconcile(ctx, ref)
	wants(t, "an altered row", err, 500, "STORE_CONTRACT_ERROR")
	restore()
	changed := ledgertest.Tool(queryable, entry.Queryable)
	changed.Revisions.Handler = "v2"
	old := *w.work
	if err := w.poller.Swap(ctx, &poller.Work{Registry: ledgertest.Registry(t, changed), Handlers: old.Handlers}); err != nil {
		t.Fatal(err)
	}
	_, err = w.as(0).Reconcile(ctx, ref)
	wants(t, "another contract", err, 409, "CONTRACT_DRIFT")
	if err := w.poller.Swap(ctx, &old); err != nil {
		t.Fatal(err)
	}
	for field, e := range map[string]api.Expected{
		"request_sha256":   {RequestSum: strings.Repeat("0", 64)},
		"idempotency_key":  {IdempotencyKey: "order-2"},
		"provider":         {Origin: &api.Origin{Provider: "other"}},
		"api_family":       {Origin: &api.Origin{APIFamily: "other"}},
		"adapter_revision": {Origin: &api.Origin{AdapterRevision: "other"}},
	} {
		_, err = w.as(0).ReconcileExpected(ctx, ref, e)
		if p := refused(t, field, err, 409, "IDEMPOTENCY_CONFLICT"); !slices.Equal(p.Fields, []string{field}) {
			t.Errorf("%s: the conflict names %q", field, p.Fields)
		}
	}
	_, err = w.as(otherUID).ReconcileExpected(ctx, ref, api.Expected{IdempotencyKey: "order-2"})
	wants(t, "a stranger who guesses", err, 404, "NOT_FOUND")
	if asked != 0 {
		t.Errorf("asked %d times, want never", asked)
	}
	if a, err := w.as(0).ReconcileExpected(ctx, ref, w.meant(ref)); err != nil || a.Code != "OK" || a.Delivery != "receipt_reconciled" || asked != 1 {
		t.Errorf("the same contract: got %+v, %v after %d questions", a, err, asked)
	}
}

// meant is what the operation is, as its caller knows it.
func (w *world) meant(ref string) (e api.Expected) {
	w.t.Helper()
	ledgertest.Read(w.t, w.ledger, func(v *ledger.View) error {
		op, err := intake.ByRef(v, ref)
		if err == nil {
			e = api.Expected{RequestSum: hex.EncodeToString(op.RequestSum[:]), IdempotencyKey: op.Scope.Key, Origin: &api.Origin{}}
		}
		return err
	})
	return e
}
