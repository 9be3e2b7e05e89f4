package api_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledgertest"
	"github.com/outboxd/outboxd/poller"
)

// bossUID is an operator that may submit for nobody, shopperUID one that may for acme.
const (
	bossUID    = 12201
	shopperUID = 12202
)

// approving is a world whose opaque tool wants approvals.
func approving(t *testing.T, s script, rule config.Approval) *world {
	t.Helper()
	w := newWorld(t, s)
	tool := ledgertest.Tool(opaque, entry.Opaque)
	tool.Approval = rule
	handlers := w.work.Handlers
	w.work = &poller.Work{Registry: ledgertest.Registry(t, tool, ledgertest.Tool(idempotent, entry.Idempotent)), Handlers: handlers}
	if err := w.poller.Swap(context.Background(), w.work); err != nil {
		t.Fatal(err)
	}
	scope := []config.Scope{{Tenant: "acme", Subject: "shop"}}
	w.api.Swap(api.NewAccess(config.Operators{UIDs: []int{bossUID, shopperUID}}, []config.Principal{
		{Name: "guest", UID: guestUID, MaySubmit: scope}, {Name: "shopper", UID: shopperUID, MaySubmit: scope},
	}))
	return w
}

func yes() api.Approve { return api.Approve{Reason: "looks right"} }

func TestAnOperationWaitsForAnApprovalOfSomebodyElse(t *testing.T) {
	called := make(chan struct{}, 9)
	w := approving(t, script{run: func(context.Context, handler.Call) ([]byte, error) { called <- struct{}{}; return nil, nil }}, config.Approval{Mode: "required"})
	w.run()
	ctx := context.Background()
	a, err := w.as(guestUID).Submit(ctx, aCase(opaque, "order-1"), 0)
	if err != nil || a.Code != "APPROVAL_REQUIRED" || a.Gate != api.Block || a.Status != "waiting" || a.Reason != "approval_required" {
		t.Fatalf("submit: got %+v, %v", a, err)
	}
	if again, err := w.as(guestUID).Submit(ctx, aCase(opaque, "order-1"), 0); err != nil || again.StatusRef != a.StatusRef || again.Code != "APPROVAL_REQUIRED" {
		t.Errorf("again: got %+v, %v", again, err)
	}
	_, err = w.as(guestUID).Approve(ctx, a.StatusRef, yes())
	wants(t, "the subject's own uid", err, 403, "AUTHORIZATION_DENIED")
	_, err = w.as(shopperUID).Approve(ctx, a.StatusRef, yes())
	wants(t, "an operator that may submit for the subject", err, 403, "AUTHORIZATION_DENIED")
	_, err = w.as(otherUID).Approve(ctx, a.StatusRef, yes())
	wants(t, "a stranger", err, 404, "NOT_FOUND")
	_, err = w.as(bossUID).Approve(ctx, a.StatusRef, api.Approve{})
	wants(t, "without a reason", err, 422, "INPUT_INVALID")
	if len(called) != 0 {
		t.Fatal("the effect came before the approval")
	}
	if _, err := w.as(bossUID).Approve(ctx, a.StatusRef, yes()); err != nil {
		t.Fatalf("approve: %v", err)
	}
	if a, err = w.as(guestUID).Status(ctx, a.StatusRef, 20*time.Second); err != nil || a.Code != "OK" {
		t.Errorf("status: got %+v, %v", a, err)
	}
	_, err = w.as(bossUID).Approve(ctx, a.StatusRef, yes())
	wants(t, "a second time", err, 409, "NOT_WAITING")
	if len(called) != 1 {
		t.Errorf("%d effects, want one", len(called))
	}
}

func TestOfTwoApprovalsAtATimeOneWins(t *testing.T) {
	w := approving(t, script{}, config.Approval{Mode: "required"})
	a := w.accept(opaque, "order-1")
	var group sync.WaitGroup
	errs := make(chan error, 8)
	for range 8 {
		group.Go(func() {
			_, err := w.as(bossUID).Approve(context.Background(), a.StatusRef, yes())
			errs <- err
		})
	}
	group.Wait()
	close(errs)
	won := 0
	for err := range errs {
		if err == nil {
			won++
			continue
		}
		wants(t, "who lost", err, 409, "NOT_WAITING")
	}
	if won != 1 {
		t.Errorf("%d won, want 1", won)
	}
}

func TestARefusedOrLateApprovalEndsTheOperation(t *testing.T) {
	w := approving(t, script{}, config.Approval{Mode: "required"})
	ctx := context.Background()
	a := w.accept(opaque, "order-1")
	got, err := w.as(shopperUID).Approve(ctx, a.StatusRef, api.Approve{Refuse: true, Reason: "no"})
	if err != nil || got.Code != "DISCARDED" || got.Reason != "approval_refused" {
		t.Errorf("refuse: got %+v, %v", got, err)
	}
	w = approving(t, script{}, config.Approval{Mode: "required", ExpiresAfter: time.Second})
	a = w.accept(opaque, "order-1")
	<-time.After(1100 * time.Millisecond)
	_, err = w.as(bossUID).Approve(ctx, a.StatusRef, yes())
	wants(t, "after the deadline, before anybody looked", err, 409, "NOT_WAITING")
	w.run()
	if got, err := w.as(bossUID).Status(ctx, a.StatusRef, 20*time.Second); err != nil || got.Code != "APPROVAL_REQUIRED" && got.Code != "DISCARDED" {
		t.Errorf("status: got %+v, %v", got, err)
	}
}

func TestAnApprovalThatComesWithTheCaseIsUsedOnce(t *testing.T) {
	w := approving(t, script{}, config.Approval{Mode: "required"})
	ctx := context.Background()
	with := func(key, id, approver string, from, until time.Duration) api.Case {
		c := aCase(opaque, key)
		c.Approval = &api.Approval{ID: id, Approver: approver, ApprovedAt: time.Now().Add(from), ExpiresAt: time.Now().Add(until)}
		return c
	}
	_, err := w.as(guestUID).Submit(ctx, with("order-1", "ap-1", "boss", -time.Hour, time.Hour), 0)
	wants(t, "brought by who submits", err, 403, "AUTHORIZATION_DENIED")
	for name, c := range map[string]api.Case{
		"expired":        with("order-1", "ap-1", "boss", -time.Hour, -time.Second),
		"not yet":        with("order-1", "ap-1", "boss", time.Hour, 2*time.Hour),
		"by the subject": with("order-1", "ap-1", "shop", -time.Hour, time.Hour),
		"without an id":  with("order-1", "", "boss", -time.Hour, time.Hour),
		"backwards":      with("order-1", "ap-1", "boss", time.Hour, -time.Hour),
	} {
		_, err := w.as(bossUID).Submit(ctx, c, 0)
		wants(t, name, err, 422, "INPUT_INVALID")
	}
	a, err := w.as(bossUID).Submit(ctx, with("order-1", "ap-1", "boss", -time.Hour, time.Hour), 0)
	if err != nil || a.Code != "ACCEPTED" {
		t.Fatalf("valid: got %+v, %v", a, err)
	}
	_, err = w.as(bossUID).Submit(ctx, with("order-2", "ap-1", "boss", -time.Hour, time.Hour), 0)
	wants(t, "used for another operation", err, 422, "INPUT_INVALID")
	if again, err := w.as(bossUID).Submit(ctx, with("order-1", "ap-2", "boss", -time.Hour, time.Hour), 0); err != nil || again.StatusRef != a.StatusRef {
		t.Errorf("again: got %+v, %v", again, err)
	}
	free := with("order-3", "ap-3", "boss", -time.Hour, time.Hour)
	free.Call.Tool = idempotent
	_, err = w.as(bossUID).Submit(ctx, free, 0)
	wants(t, "a tool that wants none", err, 422, "INPUT_INVALID")
}
