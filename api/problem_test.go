package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/ledger"
)

func TestErrorsOfTheFileHaveTheirCodes(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{ledger.ErrDiskFull, 507, "DISK_FULL"},
		{errors.Join(ledger.ErrDiskFull, errors.New("13")), 507, "DISK_FULL"},
		{ledger.ErrBusy, 503, "DATABASE_BUSY"},
		{errors.Join(ledger.ErrBusy, context.DeadlineExceeded), 503, "DATABASE_BUSY"},
		{context.DeadlineExceeded, 503, "DATABASE_BUSY"},
		{ledger.ErrReplaced, 503, "DATABASE_REPLACED"},
		{ledger.ErrClosed, 503, "CLOSED"},
		{ledger.ErrVoid, 500, "INTERNAL_ERROR"},
		{errors.New("open /etc/secret: no"), 500, "INTERNAL_ERROR"},
	} {
		p := api.ProblemOf(fmt.Errorf("accept operation: %w", c.err))
		if p.Status != c.status || p.Code != c.code || p.Exit() != 2 || p.Title == "" || p.Detail == "" {
			t.Errorf("%v: got %+v, want %d %s, exit 2", c.err, p, c.status, c.code)
		}
	}
}

// Nobody may be told what nobody knows.
func TestCommitOfUnknownFateIsNotAnswered(t *testing.T) {
	w := newWorld(t, script{})
	w.misplace()
	if err := w.ledger.Check(); err == nil {
		t.Fatal("the ledger has not failed")
	}
	answer := httptest.NewRecorder()
	defer func() {
		if p, _ := recover().(error); !errors.Is(p, http.ErrAbortHandler) {
			t.Errorf("got %v, want the connection cut", p)
		}
		if answer.Body.Len() != 0 {
			t.Errorf("answered %s", answer.Body)
		}
	}()
	api.Fail(w.api, answer, httptest.NewRequest("POST", "/v1/operations", nil), fmt.Errorf("accept: %w", ledger.ErrCommitUnknown))
}

func TestCutCallInThisProcessIsUnanswered(t *testing.T) {
	cut := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err := api.NewClient(api.Local(cut, 0)).Submit(context.Background(), aCase(opaque, "order-1"), 0)
	if !errors.Is(err, api.ErrUnanswered) {
		t.Errorf("got %v, want ErrUnanswered", err)
	}
}

func TestAlteredResultIsNotShown(t *testing.T) {
	w := newWorld(t, script{})
	ref := w.place(idempotent, "order-1", "delivered")
	restore := w.alter(`UPDATE outbox_receipt SET result = '{"mail":"<8>"}'`, `UPDATE outbox_receipt SET result = '{"mail":"<7>"}'`)
	defer restore()
	_, err := w.client.Status(context.Background(), ref, 0)
	wants(t, "status", err, 500, "STORE_CONTRACT_ERROR")
	report, err := w.client.Audit(context.Background())
	if err != nil || report.Clean() {
		t.Errorf("audit: got %+v, %v, want findings", report, err)
	}
}
