package api_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// long is more than any of these tests takes.
const long = time.Minute

func TestSubmitWaitsUntilItIsDelivered(t *testing.T) {
	w := newWorld(t, script{run: func(context.Context, handler.Call) ([]byte, error) { return []byte(`{"mail":7}`), nil }})
	w.run()
	a, err := w.client.Submit(context.Background(), aCase(idempotent, "order-1"), long)
	if err != nil || a.Code != "OK" || a.Delivery != "fresh" || string(a.Result) != `{"mail":7}` || a.Exit(api.Submitted) != 0 {
		t.Errorf("got %+v, %v, want OK, fresh, the result", a, err)
	}
	again, err := w.client.Submit(context.Background(), aCase(idempotent, "order-1"), long)
	if err != nil || again.Delivery != "local_replay" || again.StatusRef != a.StatusRef || string(again.Result) != `{"mail":7}` {
		t.Errorf("again: got %+v, %v, want local_replay of the same", again, err)
	}
}

func TestWaitEndsAtEverySettledState(t *testing.T) {
	for _, c := range []struct {
		tool string
		err  error
		code string
	}{
		{idempotent, handler.Reject(errors.New("no")), "DEAD_LETTERED"},
		{opaque, errors.New("broken pipe"), "OUTCOME_UNKNOWN"},
	} {
		w := newWorld(t, script{run: func(context.Context, handler.Call) ([]byte, error) { return nil, c.err }})
		w.run()
		a, err := w.client.Submit(context.Background(), aCase(c.tool, "order-1"), long)
		if err != nil || a.Code != c.code || a.Reason == "" {
			t.Errorf("%s: got %+v, %v, want %s with a reason", c.tool, a, err, c.code)
		}
	}
}

func TestWaitEndsWithThePresentState(t *testing.T) {
	w := newWorld(t, script{})
	a, err := w.client.Submit(context.Background(), aCase(opaque, "order-1"), 30*time.Millisecond)
	if err != nil || a.Code != "ACCEPTED" || a.Status != "pending" {
		t.Errorf("submit: got %+v, %v, want ACCEPTED", a, err)
	}
	a, err = w.client.Status(context.Background(), a.StatusRef, 30*time.Millisecond)
	if err != nil || a.Code != "PENDING" {
		t.Errorf("status: got %+v, %v, want PENDING", a, err)
	}
}

// What another process settles rings no bell here.
func TestWaitSeesWhatRingsNoBell(t *testing.T) {
	w := newWorld(t, script{})
	a := w.accept(idempotent, "order-1")
	var done sync.WaitGroup
	done.Go(func() {
		got, err := w.client.Status(context.Background(), a.StatusRef, long)
		if err != nil || got.Code != "OK" {
			t.Errorf("got %+v, %v, want OK", got, err)
		}
	})
	w.waiting(a.StatusRef)
	ledgertest.Write(t, w.ledger, func(tx *ledger.Tx) error { return move(tx, a.ID, "delivered") })
	done.Wait()
}

// waiting returns once somebody waits for the operation.
func (w *world) waiting(ref string) {
	w.t.Helper()
	w.until("somebody waits", func() bool { return w.api.Waiting(ref) })
}

func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	limit := time.After(long)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-limit:
			w.t.Fatalf("not within %s: %s", long, what)
		}
	}
}

func TestClientThatGoesStopsWaiting(t *testing.T) {
	w := newWorld(t, script{})
	a := w.accept(opaque, "order-1")
	for name, client := range map[string]*api.Client{"socket": w.client, "in process": w.as(0)} {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			_, err := client.Status(ctx, a.StatusRef, long)
			ended <- err
		}()
		w.waiting(a.StatusRef)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want the cancellation", name, err)
		}
		w.until(name+": nobody waits", func() bool { return !w.api.Waiting(a.StatusRef) })
	}
}

func TestWaitersAreAnsweredWhenTheServerStops(t *testing.T) {
	w := newWorld(t, script{})
	a := w.accept(opaque, "order-1")
	socket := filepath.Join(shortDir(t), "s")
	l, err := api.Listen(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, l, w.api, zap.NewNop()) }()
	answered := make(chan error, 1)
	go func() {
		got, err := api.NewClient(api.Socket(socket)).Status(context.Background(), a.StatusRef, long)
		if err == nil && got.Code != "PENDING" {
			err = errors.New("got " + got.Code)
		}
		answered <- err
	}()
	w.waiting(a.StatusRef)
	stop()
	if err := <-answered; err != nil {
		t.Errorf("the waiter: %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestReconcileAnswersAsStatusDoes(t *testing.T) {
	found := handler.Answer{Found: handler.Applied, Code: "http_200", Result: []byte(`{"refund":9}`)}
	w := newWorld(t, script{ask: func(context.Context, handler.Call) handler.Answer { return found }})
	ref := w.place(queryable, "order-1", "unknown")
	a, err := w.client.Reconcile(context.Background(), ref)
	if err != nil || a.Code != "OK" || a.Delivery != "receipt_reconciled" || string(a.Result) != `{"refund":9}` {
		t.Errorf("applied: got %+v, %v, want OK receipt_reconciled", a, err)
	}
	if again, err := w.client.Reconcile(context.Background(), ref); err != nil || again.Delivery != "receipt_reconciled" {
		t.Errorf("again: got %+v, %v, want the same", again, err)
	}
	found = handler.Answer{Found: handler.NoAnswer, Code: "http_500"}
	ref = w.place(queryable, "order-2", "unknown")
	if a, err = w.client.Reconcile(context.Background(), ref); err != nil || a.Code != "OUTCOME_UNKNOWN" {
		t.Errorf("no answer: got %+v, %v, want OUTCOME_UNKNOWN", a, err)
	}
	list, err := w.client.Attempts(context.Background(), ref)
	if err != nil || len(list.Attempts) != 2 || list.Attempts[1].Kind != string(entry.Query) || list.Attempts[1].Code != "http_500" {
		t.Errorf("attempts: got %+v, %v, want the attempt and the question", list, err)
	}
}

func TestReconcileOfWhatCannotBeAskedIsItsPresentState(t *testing.T) {
	w := newWorld(t, script{})
	for state, code := range map[string]string{"unknown": "OUTCOME_UNKNOWN", "pending": "PENDING", "dead": "DEAD_LETTERED"} {
		ref := w.place(opaque, "order-"+state, state)
		a, err := w.client.Reconcile(context.Background(), ref)
		if err != nil || a.Code != code || a.Exit(api.Asked) != 1 {
			t.Errorf("%s: got %+v, %v, want %s", state, a, err, code)
		}
	}
}
