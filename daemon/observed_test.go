package daemon_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/handler"
)

// until waits for a series to have a value that will do.
func (w *world) until(series string, ok func(float64) bool) {
	w.Helper()
	last := "missing"
	for over := time.Now().Add(patience); time.Now().Before(over); {
		for line := range strings.Lines(w.scraped()) {
			if v, found := strings.CutPrefix(line, series+" "); found {
				last = strings.TrimSpace(v)
			}
		}
		if v, err := strconv.ParseFloat(last, 64); err == nil && ok(v) {
			return
		}
	}
	w.Errorf("%s stays %s", series, last)
}

func is(want float64) func(float64) bool { return func(v float64) bool { return v == want } }
func positive(v float64) bool            { return v > 0 }

// denier says that the downstream knows the key for another request.
type denier struct{}

func (denier) Ask(context.Context, handler.Call) handler.Answer {
	return handler.Answer{Found: handler.Conflict, Code: "other_request"}
}

func TestContradictionsAndUnknownsAreCounted(t *testing.T) {
	w := run(t, settings(t.TempDir()), daemon.Options{Tools: []daemon.Tool{{
		Config:  config.Tool{Name: "pay", Effect: "queryable", Timeout: time.Second},
		Handler: handler.Func(func(context.Context, handler.Call) ([]byte, error) { return nil, errors.New("connection lost") }),
		Asker:   denier{},
	}}}).ready()
	_, err := w.client.Submit(t.Context(), request("pay", "order-17"), 0)
	must(t, err)
	w.until(`outboxd_receipt_conflicts_total{tool="pay"}`, is(1))
	w.until(`outboxd_duplicate_effects_total{tool="pay"}`, is(0))
	w.until(`outboxd_oldest_unknown_age_seconds`, positive)
	w.until(`outboxd_claims_total{tool="pay"}`, is(2)) // the attempt and the question
	w.until(`outboxd_claim_lag_seconds_count`, is(2))
	must(t, w.end())
}

// TestASecondEffectIsCounted: an attempt still runs when its entry is taken from it, as
// after a lease that ran out, and both succeed.
func TestASecondEffectIsCounted(t *testing.T) {
	cfg := settings(t.TempDir())
	called, release := make(chan struct{}, 2), make(chan struct{})
	first := true
	w := run(t, cfg, daemon.Options{Tools: []daemon.Tool{{
		Config: config.Tool{Name: "post", Effect: "opaque", Timeout: time.Minute, Concurrency: 2},
		Handler: handler.Func(func(context.Context, handler.Call) ([]byte, error) {
			held := first // the second call begins after the first one's signal
			first = false
			called <- struct{}{}
			if held {
				<-release
			}
			return fmt.Appendf(nil, `{"first":%t}`, held), nil
		}),
	}}}).ready()
	a, err := w.client.Submit(t.Context(), request("post", "order-17"), 0)
	must(t, err)
	<-called
	db, err := sql.Open("sqlite", cfg.Database.Path+"?_pragma=busy_timeout(5000)")
	must(t, err)
	_, err = db.Exec(`UPDATE outbox_entry SET state = 'pending', owner = NULL, token = NULL, due_at = 1, unproven_since = NULL, unproven_by = NULL`)
	must(t, err)
	must(t, db.Close())
	<-called
	done, err := w.client.Status(t.Context(), a.StatusRef, patience)
	must(t, err)
	if done.Status != "succeeded" {
		t.Fatalf("got %+v, want the second attempt's success", done)
	}
	close(release)
	w.until(`outboxd_duplicate_effects_total{tool="post"}`, is(1))
	w.until(`outboxd_receipt_conflicts_total{tool="post"}`, is(1))
	w.until(`outboxd_stale_settles_total{tool="post"}`, is(1))
	must(t, w.end())
}

// TestLeasesThatRanOutAreCounted: the daemon before this one died in the middle.
func TestLeasesThatRanOutAreCounted(t *testing.T) {
	cfg := settings(t.TempDir())
	tool := daemon.Tool{
		Config:  config.Tool{Name: "call", Effect: "idempotent", Timeout: time.Second},
		Handler: handler.Func(func(context.Context, handler.Call) ([]byte, error) { return nil, nil }),
	}
	w := run(t, cfg, daemon.Options{Tools: []daemon.Tool{tool}}).ready()
	late := request("call", "order-17")
	late.NotBefore = time.Now().Add(time.Hour)
	_, err := w.client.Submit(t.Context(), late, 0)
	must(t, err)
	must(t, w.end())
	db, err := sql.Open("sqlite", cfg.Database.Path)
	must(t, err)
	_, err = db.Exec(`UPDATE outbox_meta SET last_token = last_token + 1`)
	must(t, err)
	_, err = db.Exec(`UPDATE outbox_entry SET state = 'sending', owner = 1, token = (SELECT last_token FROM outbox_meta),
		claim_token = (SELECT last_token FROM outbox_meta), attempts = 1, last_sent_at = changed_at, unproven_since = changed_at,
		unproven_by = (SELECT last_token FROM outbox_meta), over_at = changed_at, due_at = changed_at`)
	must(t, err)
	must(t, db.Close())
	w = run(t, cfg, daemon.Options{Tools: []daemon.Tool{tool}}).ready()
	w.until(`outboxd_lapses_total`, is(1))
	must(t, w.end())
}
