package daemon

import (
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/poller"
)

// other stands for every label that is not in a fixed set: the number of series
// follows from the config alone, never from what is submitted.
const other = "other"

// outcomes are the values of the label outcome: what attempts come to, and
// what questions are answered with.
var outcomes = []string{
	string(handler.Succeeded), string(handler.Rejected), string(handler.TryAgain), string(handler.NotSent),
	string(handler.MayHaveHappened), handler.InProgress,
	"query_" + string(handler.Applied), "query_" + string(handler.NotApplied), "query_" + handler.InProgress,
	conflict, "query_" + string(handler.NoAnswer), string(entry.Blocked), other,
}

// conflict is the outcome of a question that contradicts what is known.
const conflict = "query_" + string(handler.Conflict)

// metrics counts what happens. What can be read from the file is not counted
// but read when it is asked for (stock).
type metrics struct {
	registry *prometheus.Registry
	stock    *stock                 // set by handler
	known    func(tool string) bool // set by handler, before anything is counted by tool

	attempts   *prometheus.CounterVec
	took       *prometheus.HistogramVec
	staleOnes  *prometheus.CounterVec
	lapses     prometheus.Counter
	lag        prometheus.Histogram
	unrenewed  prometheus.Counter
	closures   prometheus.Histogram
	commits    prometheus.Histogram
	clockSteps prometheus.Counter
	reloads    reloadMetrics
	purgedRows *prometheus.CounterVec
	work       workMetrics
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		known:    func(string) bool { return false },
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outboxd_attempts_total",
			Help: "Attempts and questions that ended, by what was observed."}, []string{"tool", "outcome"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "outboxd_attempt_duration_seconds",
			Help:    "Time from the call of a handler to its end, questions included.",
			Buckets: []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 120}}, []string{"tool"}),
		staleOnes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outboxd_stale_settles_total",
			Help: "Settles that were refused because somebody else had taken the entry over."}, []string{"tool"}),
		lapses: prometheus.NewCounter(prometheus.CounterOpts{Name: "outboxd_lapses_total",
			Help: "Leases that ended without a settle."}),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "outboxd_heartbeat_lag_seconds",
			Help:    "How late the leases were renewed.",
			Buckets: []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 120}}),
		unrenewed: prometheus.NewCounter(prometheus.CounterOpts{Name: "outboxd_heartbeat_failures_total",
			Help: "Renewals that could not be written."}),
		closures: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "outboxd_batch_closures",
			Help: "Writes that shared one commit.", Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "outboxd_commit_seconds",
			Help:    "Time that a COMMIT took, its fsync included.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5}}),
		clockSteps: prometheus.NewCounter(prometheus.CounterOpts{Name: "outboxd_clock_steps_total",
			Help: "Times that the wall clock was set."}),
	}
	m.purgedRows = newPurged()
	m.registry.MustRegister(m.purgedRows)
	m.reloads, m.work = newReloadMetrics(m.registry), newWorkMetrics(m.registry)
	m.registry.MustRegister(m.attempts, m.took, m.staleOnes, m.lapses, m.lag, m.unrenewed, m.closures, m.commits,
		m.clockSteps, collectors.NewGoCollector(), collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// batch is told of every batch that wrote.
func (m *metrics) batch(closures int, commit time.Duration) {
	m.closures.Observe(float64(closures))
	m.commits.Observe(commit.Seconds())
}

// renewed is told of every renewal of the leases.
func (m *metrics) renewed(lag time.Duration, failed bool) {
	m.lag.Observe(lag.Seconds())
	if failed {
		m.unrenewed.Inc()
	}
}

// lapsed is told how many leases ended without a settle.
func (m *metrics) lapsed(n int) { m.lapses.Add(float64(n)) }

// attempt is told what an attempt or a question came to.
func (m *metrics) attempt(tool, outcome string, took time.Duration) {
	outcome, tool = within(outcomes, outcome), m.tool(tool)
	if outcome == conflict {
		m.work.conflicts.WithLabelValues(tool).Inc()
	}
	m.attempts.WithLabelValues(tool, outcome).Inc()
	m.took.WithLabelValues(tool).Observe(took.Seconds())
}

// within is the value, or other: the values of a label are a closed list.
func within(values []string, value string) string {
	if slices.Contains(values, value) {
		return value
	}
	return other
}

// stale is told of a settle that was refused.
func (m *metrics) stale(tool string) { m.staleOnes.WithLabelValues(m.tool(tool)).Inc() }

// stepped is told that the wall clock was set.
func (m *metrics) stepped() { m.clockSteps.Inc() }

func (m *metrics) tool(name string) string {
	if m.known(name) {
		return name
	}
	return other
}

// handler answers scrapes: what was counted, and what stands in the file.
func (m *metrics) handler(l *ledger.Ledger, p *poller.Poller) http.Handler {
	m.known = func(tool string) bool {
		_, ok := p.Work().Registry.Lookup(tool)
		return ok
	}
	m.stock = newStock(l, p)
	m.registry.MustRegister(m.stock)
	scrape := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, Registry: m.registry, MaxRequestsInFlight: 2,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.begin(append(p.Work().Registry.Names(), other))
		scrape.ServeHTTP(w, r)
	})
}

// begin makes every series of these tools exist, so that the first failure is a
// step from 0 and not a series that appears.
func (m *metrics) begin(tools []string) {
	for _, tool := range tools {
		m.work.begin(tool)
		m.took.WithLabelValues(tool)
		m.staleOnes.WithLabelValues(tool)
		for _, outcome := range outcomes {
			m.attempts.WithLabelValues(tool, outcome)
		}
	}
}
