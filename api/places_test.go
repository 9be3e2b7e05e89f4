package api_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/ledger"
)

// moment is how long callers wait in these tests.
const moment = 500 * time.Millisecond

func (w *world) occupy(uid int) (leave func()) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	leave, err := w.api.Occupy(ctx, uid)
	if err != nil {
		w.t.Fatalf("place of uid %d: %v", uid, err)
	}
	return leave
}

func TestOneUIDTakesOnePlaceAmongTheLists(t *testing.T) {
	w := newWorld(t, script{})
	shops(w)
	w.api.Hurry(moment, long)
	list := func(uid int) error {
		_, err := w.as(uid).List(context.Background(), api.Filter{})
		return err
	}
	leave := w.occupy(shopUID)
	wants(t, "a second list of the same uid", list(shopUID), 503, "DATABASE_BUSY")
	if err := list(acmeUID); err != nil {
		t.Errorf("a list of another uid: %v", err)
	}
	leaveOther := w.occupy(acmeUID)
	wants(t, "no place left", list(otherUID), 503, "DATABASE_BUSY")
	_, err := w.as(0).Refused(context.Background(), 0, 0)
	wants(t, "no place left for refused rows", err, 503, "DATABASE_BUSY")
	leave()
	if err := list(otherUID); err != nil {
		t.Errorf("after a place was left: %v", err)
	}
	leaveOther()
}

func TestPlaceThatIsLeftGoesToWhoWaits(t *testing.T) {
	w := newWorld(t, script{})
	shops(w)
	leave := w.occupy(shopUID)
	done := make(chan error, 1)
	go func() {
		_, err := w.as(shopUID).List(context.Background(), api.Filter{})
		done <- err
	}()
	leave()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestOneAuditAtATime(t *testing.T) {
	w := newWorld(t, script{})
	w.api.Hurry(moment, long)
	leave, err := w.api.OccupyAudit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.client.Audit(context.Background())
	wants(t, "a second audit", err, 503, "DATABASE_BUSY")
	if _, err := w.client.List(context.Background(), api.Filter{}); err != nil {
		t.Errorf("a list beside an audit: %v", err)
	}
	leave()
	if _, err := w.client.Audit(context.Background()); err != nil {
		t.Errorf("after the first: %v", err)
	}
}

func TestStatementThatReadsTooLongIsInterrupted(t *testing.T) {
	w := newWorld(t, script{})
	w.api.Hurry(moment, long)
	err := w.api.Scan(httptest.NewRequest("GET", "/v1/operations", nil), func(v *ledger.View) error {
		var n int
		return v.One(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n`).Scan(&n)
	})
	if p := api.ProblemOf(err); p.Status != 503 || p.Code != "DATABASE_BUSY" {
		t.Errorf("got %v as %+v, want 503 DATABASE_BUSY", err, p)
	}
}
