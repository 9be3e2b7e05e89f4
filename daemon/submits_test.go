package daemon_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/handler"
)

// scraped is the page of metrics.
func (w *world) scraped() string {
	w.Helper()
	transport := api.Socket(w.cfg.Listen.Socket)
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Get("http://outboxd/metrics")
	must(w.T, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(w.T, err)
	return string(text)
}

func TestWhatComesInIsCounted(t *testing.T) {
	w := run(t, settings(t.TempDir()), daemon.Options{Tools: []daemon.Tool{{
		Config:  config.Tool{Name: "call", Effect: "idempotent"},
		Handler: handler.Func(func(context.Context, handler.Call) ([]byte, error) { return nil, nil }),
	}}}).ready()
	other := request("call", "order-17")
	other.Call.Arguments = jsontext.Value(`{"n":1}`)
	for range 2 {
		_, err := w.client.Submit(t.Context(), request("call", "order-17"), patience)
		must(t, err)
	}
	for _, c := range []api.Case{other, request("nonesuch", "order-17")} {
		if _, err := w.client.Submit(t.Context(), c, 0); err == nil {
			t.Error("accepted what it must refuse")
		}
	}
	page := w.scraped()
	for _, want := range []string{
		`outboxd_submits_total{code="OK"} 2`, `outboxd_submits_total{code="IDEMPOTENCY_CONFLICT"} 1`,
		`outboxd_submits_total{code="TOOL_UNKNOWN"} 1`, `outboxd_claims_total{tool="call"} 1`, `outboxd_claim_lag_seconds_count 1`,
		`outboxd_attempts_total{outcome="succeeded",tool="call"} 1`, `outboxd_loop_stuck{loop="committer"} 0`,
		`outboxd_intake_rows_total{result="accepted"} 0`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	skew := 0.0
	for line := range strings.Lines(page) {
		if text, ok := strings.CutPrefix(line, "outboxd_clock_skew_seconds "); ok {
			var err error
			skew, err = strconv.ParseFloat(strings.TrimSpace(text), 64)
			must(t, err)
		}
	}
	if skew > 1 || skew < -1 {
		t.Errorf("the clock is said to be %v s off", skew)
	}
	must(t, w.end())
}
