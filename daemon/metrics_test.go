package daemon

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/lease"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
	"github.com/outboxd/outboxd/poller"
)

// scraped is a file with a poller that does not run, and the metrics of both.
// Its clock stands still.
type scraped struct {
	*testing.T
	now     time.Time
	l       *ledger.Ledger
	reg     *contract.Registry
	p       *poller.Poller
	metrics *metrics
	handler http.Handler
}

func scrape(t *testing.T, tools ...config.Tool) *scraped {
	t.Helper()
	s := &scraped{T: t, now: time.Now().Truncate(time.Millisecond), metrics: newMetrics(), reg: ledgertest.Registry(t, tools...)}
	s.l = ledgertest.Open(t, ledger.Options{Now: func() time.Time { return s.now }})
	keeper := lease.NewKeeper(s.l, lease.Options{TTL: time.Minute, Heartbeat: time.Second}, zap.NewNop())
	s.p = poller.New(s.l, keeper, &poller.Work{Registry: s.reg}, poller.Options{Concurrency: 1}, zap.NewNop())
	s.handler = s.metrics.handler(s.l, s.p)
	s.metrics.stock.keep = 0 // each scrape reads
	return s
}

func (s *scraped) answer() string {
	s.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		s.Fatalf("scrape: HTTP status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func (s *scraped) want(series, want string) {
	s.Helper()
	got := "missing"
	for line := range strings.Lines(s.answer()) {
		if v, ok := strings.CutPrefix(line, series+" "); ok {
			got = strings.TrimSpace(v)
		}
	}
	if got != want {
		s.Errorf("%s is %s, want %s", series, got, want)
	}
}

// series of outboxd's own, without their values.
func (s *scraped) series() []string {
	var list []string
	for line := range strings.Lines(s.answer()) {
		if strings.HasPrefix(line, "outboxd_") {
			list = append(list, line[:strings.LastIndex(line, " ")])
		}
	}
	slices.Sort(list)
	return list
}

func (s *scraped) accept(tool string, keys ...string) (ids []int64) {
	s.Helper()
	for _, key := range keys {
		ids = append(ids, ledgertest.Accept(s.T, s.l, s.reg, ledgertest.Request(tool, key)).ID)
	}
	return ids
}

// claim takes an entry, and marks it where the claim is the mark.
func (s *scraped) claim(id int64, marked bool) (held entry.Held) {
	s.Helper()
	ledgertest.Write(s.T, s.l, func(tx *ledger.Tx) error {
		due, err := entry.Get(tx, id)
		if err != nil {
			return err
		}
		token, err := tx.Tokens(1)
		if err != nil {
			return err
		}
		held, err = entry.Take(tx, due, entry.Lease{Token: token, Until: tx.Now().Add(time.Minute), Over: tx.Now()}, marked)
		return err
	})
	return held
}

func TestNamesOfMetricsAreWellFormed(t *testing.T) {
	s := scrape(t, ledgertest.Tool("mail", entry.Idempotent))
	problems, err := promlint.New(strings.NewReader(s.answer())).Lint()
	if err != nil {
		t.Fatalf("lint: %v", err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestSeriesDoNotGrowWithTraffic(t *testing.T) {
	s := scrape(t, ledgertest.Tool("mail", entry.Idempotent), ledgertest.Tool("refund", entry.Opaque))
	before := s.series()
	for i := range 200 {
		s.accept("mail", fmt.Sprintf("key-%d", i))
		s.metrics.attempt("mail", fmt.Sprintf("http_%d", i), time.Millisecond)
		s.metrics.attempt(fmt.Sprintf("kind-%d", i), outcomes[i%len(outcomes)], time.Second)
		s.metrics.stale(fmt.Sprintf("kind-%d", i))
		s.metrics.batch(i, time.Duration(i)*time.Millisecond)
		s.metrics.renewed(time.Duration(i)*time.Second, i%2 == 0)
		s.metrics.submitted(fmt.Sprintf("CODE_%d", i))
		d := &daemon{metrics: s.metrics}
		d.Claimed(fmt.Sprintf("kind-%d", i), time.Duration(i)*time.Minute)
		d.Again(fmt.Sprintf("kind-%d", i), entry.Opaque, true)
		d.TookIn(i, i, i)
		ledgertest.Write(t, s.l, func(tx *ledger.Tx) error {
			_, err := tx.Exec(`INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments, parked)
				VALUES ('acme', 'shop', ?, ?, '{}', 1)`, fmt.Sprintf("kind-%d", i), fmt.Sprintf("key-%d", i))
			return err
		})
	}
	if after := s.series(); !slices.Equal(before, after) {
		t.Errorf("%d series before the traffic, %d after it", len(before), len(after))
	}
	s.want(`outboxd_stale_settles_total{tool="other"}`, "200")
	s.want(`outboxd_attempts_total{outcome="other",tool="mail"}`, "200")
	s.want(`outboxd_heartbeat_failures_total`, "100")
	s.want(`outboxd_submits_total{code="other"}`, "200")
	s.want(`outboxd_claims_total{tool="other"}`, "200")
	s.want(`outboxd_intake_parked`, "200")
}

func TestEntriesAreCountedByState(t *testing.T) {
	s := scrape(t, ledgertest.Tool("mail", entry.Opaque))
	for _, state := range entry.States {
		s.want(fmt.Sprintf("outboxd_entries{state=%q}", state), "0")
	}
	ids := s.accept("mail", "sending", "unknown", "sending too", "claimed", "pending", "dead")
	sent := []entry.Held{s.claim(ids[0], true), s.claim(ids[1], true), s.claim(ids[2], true)}
	s.claim(ids[3], false)
	lost := s.claim(ids[5], false)
	ledgertest.Write(t, s.l, func(tx *ledger.Tx) error {
		if _, err := sent[1].Doubt(tx, entry.Doubt{Event: entry.Maybe, To: entry.Unknown, Reason: "unproven",
			Evidence: entry.Evidence{Kind: entry.Outcome, Phase: "sending", Class: "may_have_happened", Code: "timeout"}}); err != nil {
			return err
		}
		_, err := lost.GiveUp(tx, "rejected", true, entry.Evidence{Kind: entry.Blocked, Phase: "claimed", Class: "not_sent", Code: "x"})
		return err
	})
	for state, n := range map[string]string{"pending": "1", "claimed": "1", "sending": "2", "unknown": "1", "dead": "1",
		"delivered": "0", "waiting": "0", "discarded": "0"} {
		s.want(fmt.Sprintf("outboxd_entries{state=%q}", state), n)
	}
	s.now = s.now.Add(90 * time.Second)
	s.want("outboxd_oldest_unknown_age_seconds", "90")
	s.want("outboxd_oldest_claimable_age_seconds", "90")
}

// A tool that is no longer configured has no series of its own, and yet is counted.
func TestToolsAreCountedByWhatTheyWaitFor(t *testing.T) {
	s := scrape(t, ledgertest.Tool("mail", entry.Opaque), ledgertest.Tool("fax", entry.Opaque), ledgertest.Tool("telex", entry.Opaque))
	ids := s.accept("mail", "sending", "unknown", "due", "dead")
	s.claim(ids[0], true)
	lost, dead := s.claim(ids[1], true), s.claim(ids[3], false)
	ledgertest.Write(t, s.l, func(tx *ledger.Tx) error {
		_, err := lost.Doubt(tx, entry.Doubt{Event: entry.Maybe, To: entry.Unknown, Reason: "unproven",
			Evidence: entry.Evidence{Kind: entry.Outcome, Phase: "sending", Class: "may_have_happened", Code: "timeout"}})
		if err != nil {
			return err
		}
		_, err = dead.GiveUp(tx, "rejected", true, entry.Evidence{Kind: entry.Blocked, Phase: "claimed", Class: "not_sent", Code: "x"})
		return err
	})
	s.accept("fax", "a", "b")
	s.now = s.now.Add(time.Minute)
	s.accept("telex", "a")
	s.now = s.now.Add(time.Minute)
	left := &poller.Work{Registry: ledgertest.Registry(t, ledgertest.Tool("mail", entry.Opaque))}
	if err := s.p.Swap(context.Background(), left); err != nil {
		t.Fatal(err)
	}
	if err := s.p.Pause(context.Background(), "mail", "maintenance"); err != nil {
		t.Fatal(err)
	}
	for state, n := range map[string]string{"in_flight": "1", "due": "1", "later": "0", "waiting": "0", "unknown": "1", "dead": "1"} {
		s.want(fmt.Sprintf("outboxd_tool_entries{state=%q,tool=\"mail\"}", state), n)
	}
	s.want(`outboxd_tool_entries{state="due",tool="other"}`, "3")
	s.want(`outboxd_tool_entries{state="due",tool="fax"}`, "missing")
	s.want(`outboxd_tool_oldest_due_age_seconds{tool="other"}`, "120")
	s.want(`outboxd_tool_paused{tool="mail"}`, "1")
	s.want(`outboxd_tool_breaker_open{tool="mail"}`, "0")
	s.want(`outboxd_oldest_claimable_age_seconds`, "0")
	s.want(`outboxd_entries{state="pending"}`, "4")
}

func TestSecondSuccessesAreDuplicatesOnlyWhereNobodyDeduplicates(t *testing.T) {
	s := scrape(t, ledgertest.Tool("mail", entry.Idempotent), ledgertest.Tool("pay", entry.Opaque))
	d := &daemon{metrics: s.metrics}
	s.answer() // series exist from the first scrape
	d.Again("mail", entry.Idempotent, true)
	d.Again("pay", entry.Opaque, false)
	d.Attempt("pay", "query_conflict", time.Second)
	s.want(`outboxd_duplicate_effects_total{tool="mail"}`, "0")
	s.want(`outboxd_duplicate_effects_total{tool="pay"}`, "1")
	s.want(`outboxd_receipt_conflicts_total{tool="mail"}`, "1")
	s.want(`outboxd_receipt_conflicts_total{tool="pay"}`, "1")
	s.want(`outboxd_attempts_total{outcome="query_conflict",tool="pay"}`, "1")
}

func TestOnlyWhatCouldBeAttemptedIsClaimable(t *testing.T) {
	s := scrape(t, ledgertest.Tool("mail", entry.Idempotent), ledgertest.Tool("paused", entry.Idempotent))
	later := ledgertest.Request("mail", "later")
	later.NotBefore = s.now.Add(time.Hour)
	ledgertest.Accept(t, s.l, s.reg, later)
	s.accept("paused", "a")
	if err := s.p.Pause(context.Background(), "paused", "maintenance"); err != nil {
		t.Fatalf("pause: %v", err)
	}
	s.now = s.now.Add(time.Minute)
	s.want("outboxd_oldest_claimable_age_seconds", "0")
	s.now = s.now.Add(time.Hour)
	s.want("outboxd_oldest_claimable_age_seconds", "60")
	if err := s.p.Resume(context.Background(), "paused"); err != nil {
		t.Fatalf("resume: %v", err)
	}
	s.want("outboxd_oldest_claimable_age_seconds", "3660")
}

func TestScrapesThatFollowEachOtherReadTheFileOnce(t *testing.T) {
	s := scrape(t, ledgertest.Tool("mail", entry.Idempotent))
	s.metrics.stock.keep = time.Hour
	s.want(`outboxd_entries{state="pending"}`, "0")
	s.accept("mail", "a")
	s.metrics.attempt("mail", "other", time.Second)
	s.want(`outboxd_entries{state="pending"}`, "0")
	s.want(`outboxd_attempts_total{outcome="other",tool="mail"}`, "1") // what is counted is never old
	s.metrics.stock.keep = 0
	s.want(`outboxd_entries{state="pending"}`, "1")
}

func TestAFileThatCannotBeReadKeepsTheOtherMetrics(t *testing.T) {
	s := scrape(t, ledgertest.Tool("mail", entry.Idempotent))
	if err := s.l.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	s.want(`outboxd_entries{state="pending"}`, "missing")
	s.want("outboxd_disk_full", "0")
	s.want("outboxd_clock_steps_total", "0")
}

func TestAHeldDatabaseIsTold(t *testing.T) {
	s := scrape(t, ledgertest.Tool("mail", entry.Idempotent))
	s.want("outboxd_held", "0")
	ledgertest.Write(t, s.l, func(tx *ledger.Tx) error { return tx.Hold(0) })
	s.want("outboxd_held", "1")
}
