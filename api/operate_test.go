package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

func TestToolsArePausedAndResumed(t *testing.T) {
	w := newWorld(t, script{})
	ctx := context.Background()
	tool, err := w.client.Pause(ctx, opaque, "neighbours complained")
	if err != nil || !tool.Paused || tool.PauseReason != "neighbours complained" || tool.PausedAt.IsZero() || !tool.Configured {
		t.Errorf("pause: got %+v, %v", tool, err)
	}
	list, err := w.client.Tools(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range list.Tools {
		names = append(names, x.Name)
		if x.Name == opaque && !x.Paused || x.Name != opaque && x.Paused {
			t.Errorf("listed %+v", x)
		}
	}
	if d := cmp.Diff([]string{queryable, opaque, idempotent}, names); d != "" {
		t.Errorf("tools (-want +got):\n%s", d)
	}
	if tool, err = w.client.Resume(ctx, opaque); err != nil || tool.Paused || tool.PauseReason != "" {
		t.Errorf("resume: got %+v, %v", tool, err)
	}
	if tool, err = w.client.Pause(ctx, opaque, ""); err != nil || !strings.HasPrefix(tool.PauseReason, "paused by uid ") {
		t.Errorf("pause without a reason: got %+v, %v", tool, err)
	}
	_, err = w.client.Pause(ctx, "no/such tool", "")
	wants(t, "pause of no tool", err, 422, "TOOL_UNKNOWN")
	_, err = w.client.Pause(ctx, opaque, "a\x07b")
	wants(t, "pause with a bell", err, 422, "INPUT_INVALID")
	if res, body := w.raw("POST", "/v1/tools/"+opaque+"/resume", asJSON, `{"reason":"x"}`); res.status != 422 {
		t.Errorf("resume with a reason: got %d %s, want 422", res.status, body)
	}
}

func TestRefusedRowsAreListedWithoutArguments(t *testing.T) {
	w := newWorld(t, script{})
	ledgertest.Write(t, w.ledger, func(tx *ledger.Tx) error {
		for i := range 5 {
			if _, err := tx.Exec(`INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)
				VALUES ('acme', CAST(x'73ff' AS TEXT), ?, ?, '{"a":secret}')`, opaque, fmt.Sprintf("k%d", i)); err != nil {
				return err
			}
		}
		_, err := intake.Drain(tx, w.work.Registry, 10)
		return err
	})
	var keys []string
	after := int64(0)
	for {
		p, err := w.client.Refused(context.Background(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Refused {
			keys = append(keys, r.Key)
			if r.Code != "INPUT_INVALID" || r.Message == "" || r.RefusedAt.IsZero() || r.Subject != "s\ufffd" || strings.Contains(fmt.Sprint(r), "secret") {
				t.Errorf("got %+v", r)
			}
		}
		if after = p.Next; after == 0 {
			break
		}
	}
	if d := cmp.Diff([]string{"k0", "k1", "k2", "k3", "k4"}, keys); d != "" {
		t.Errorf("keys (-want +got):\n%s", d)
	}
	if _, body := w.raw("GET", "/v1/refused?after=x", nil, ""); !strings.Contains(body, "INPUT_INVALID") {
		t.Errorf("after=x: %s", body)
	}
}

func TestAuditIsCleanAlsoWithUnknownAndDead(t *testing.T) {
	w := newWorld(t, script{})
	refs, _ := everything(w)
	report, err := w.client.Audit(context.Background())
	if err != nil || !report.Clean() || report.Checked.Operations != len(refs) {
		t.Errorf("got %+v, %v, want %d operations, clean", report, err, len(refs))
	}
}

func TestAttemptsAreEvidence(t *testing.T) {
	w := newWorld(t, script{})
	ref := w.place(opaque, "order-1", "dead")
	list, err := w.client.Attempts(context.Background(), ref)
	if err != nil || len(list.Attempts) != 1 {
		t.Fatalf("got %+v, %v", list, err)
	}
	a := list.Attempts[0]
	want := api.Attempt{Attempt: 1, Round: 1, Kind: "outcome", Phase: "sending", Class: "rejected", Code: "http_422", Excerpt: "no", Token: a.Token, At: a.At}
	if a != want || a.Token == 0 || a.At.IsZero() {
		t.Errorf("got %+v, want %+v", a, want)
	}
}
