package chaos_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/chaos"
)

func answer(t *testing.T, out string) (a api.Answer) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatalf("no answer: %v\n%s", err, out)
	}
	return a
}

// TestLostAcknowledgement: the downstream takes effect and says nothing. Each
// class of effect does what it can, and the commands say what became of it.
func TestLostAcknowledgement(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		class, status, reason, delivery string
		submit, later                   int // exit statuses
		requests                        int
		asked                           bool
	}{
		{"idempotent", "succeeded", "", "local_replay", 0, 0, 2, false},
		{"queryable", "succeeded", "", "receipt_reconciled", 0, 0, 1, true},
		{"opaque", "unknown", "unproven", "", 1, 1, 1, false},
	} {
		t.Run(c.class, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.configure("retry: {initial: 10ms, max: 100ms}", w.http("pay", c.class, chaos.Drop, ""))
			r := w.up()
			out, errs, code := w.command("submit", "--tool", "pay", "--key", "k-1", "--tenant", "acme", "--subject", "s",
				"--args", `{"amount":5}`, "--wait", "30s")
			equal(t, "exit of submit "+errs, code, c.submit)
			first := answer(t, out)
			w.wantStatus("submit", first, c.status, c.reason)
			for _, command := range []string{"status", "reconcile"} {
				out, _, code := w.command(command, first.StatusRef)
				equal(t, "exit of "+command, code, c.later)
				a := answer(t, out)
				w.wantStatus(command, a, c.status, c.reason)
				equal(t, "delivery", a.Delivery, c.delivery)
			}
			equal(t, "requests", w.of(chaos.Asked, first.StatusRef), c.requests)
			equal(t, "effects", w.of(chaos.Effect, first.StatusRef), 1)
			equal(t, "was asked", w.of(chaos.Question, first.StatusRef) > 0, c.asked)
			w.down(r)
			out, _, code = w.command("status", "--tool", "pay", "--key", "k-1")
			equal(t, "exit of status without a daemon", code, c.later)
			w.wantStatus("status without a daemon", answer(t, out), c.status, c.reason)
		})
	}
}

// TestTwoTenants: the same key of two tenants at one endpoint is two effects.
func TestTwoTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure("", w.http("pay", "idempotent", chaos.Now, ""), w.http("pay2", "idempotent", chaos.Now, ""))
	r := w.up()
	keys := map[string]bool{}
	for _, who := range []string{"acme north pay", "acme south pay", "globex north pay", "acme north pay2"} {
		f := strings.Fields(who)
		out, errs, code := w.command("submit", "--tenant", f[0], "--subject", f[1], "--tool", f[2], "--key", "order-17", "--wait", "30s")
		equal(t, who+": exit "+errs, code, 0)
		w.wantStatus(who, answer(t, out), "succeeded", "")
	}
	for _, e := range w.seen(chaos.Effect) {
		keys[e.Key] = true
	}
	equal(t, "effects", len(w.seen(chaos.Effect)), 4)
	equal(t, "wire keys", len(keys), 4)
	w.down(r)
}

// TestSharedEndpointWithRawKeys: where two tools share an endpoint, the callers'
// own keys could make two operations one. Such a config is refused.
func TestSharedEndpointWithRawKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure("", w.http("pay", "idempotent", chaos.Now, "wire_key: raw"), w.http("pay2", "idempotent", chaos.Now, ""))
	for _, command := range [][]string{{"config", "check"}, {"run"}} {
		_, errs, code := w.command(command...)
		equal(t, "exit of "+strings.Join(command, " "), code, 78)
		if !strings.Contains(errs, "wire_key") || !strings.Contains(errs, "outboxd.yaml:") {
			t.Errorf("%v says %q, which names neither the place nor the key", command, errs)
		}
	}
}
