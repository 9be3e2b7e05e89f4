package daemon

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxd/outboxd/entry"
)

// workMetrics count what comes in, what begins, and what should not happen.
type workMetrics struct {
	claims     *prometheus.CounterVec
	lag        prometheus.Histogram
	intake     *prometheus.CounterVec
	submits    *prometheus.CounterVec
	duplicates *prometheus.CounterVec
	conflicts  *prometheus.CounterVec
	stuck      *prometheus.GaugeVec
}

// submitCodes are the values of the label code of outboxd_submits_total.
var submitCodes = []string{"ACCEPTED", "PENDING", "OK", "OUTCOME_UNKNOWN", "APPROVAL_REQUIRED", "DEAD_LETTERED", "DISCARDED",
	"IDEMPOTENCY_CONFLICT", "ALREADY_PURGED", "INPUT_INVALID", "KEY_REQUIRED", "TOOL_UNKNOWN", "AUTHORIZATION_DENIED",
	"DATABASE_BUSY", "DISK_FULL", other}

// intakeResults are the values of the label result of outboxd_intake_rows_total.
var intakeResults = []string{"accepted", "repeated", "refused"}

func newWorkMetrics(r prometheus.Registerer) workMetrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := workMetrics{
		claims: vec("outboxd_claims_total", "Attempts and questions that began.", "tool"),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "outboxd_claim_lag_seconds",
			Help:    "How long after it was due an attempt or a question began.",
			Buckets: []float64{.001, .005, .025, .1, .5, 1, 5, 30, 120, 600, 3600}}),
		intake:  vec("outboxd_intake_rows_total", "Rows of outbox_intake that were taken in, by what became of them.", "result"),
		submits: vec("outboxd_submits_total", "Submits over the socket, by the code of the answer.", "code"),
		duplicates: vec("outboxd_duplicate_effects_total",
			"Second successes of one entry whose downstream does not deduplicate: the effect took place twice.", "tool"),
		conflicts: vec("outboxd_receipt_conflicts_total",
			"Proofs that contradict each other: a second success with another result, or a question that was answered with a conflict.", "tool"),
		stuck: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "outboxd_loop_stuck",
			Help: "1 while a loop of the daemon does not move: the watchdog is not fed."}, []string{"loop"}),
	}
	for _, code := range submitCodes {
		m.submits.WithLabelValues(code)
	}
	for _, result := range intakeResults {
		m.intake.WithLabelValues(result)
	}
	r.MustRegister(m.claims, m.lag, m.intake, m.submits, m.duplicates, m.conflicts, m.stuck, newSkew())
	return m
}

// newSkew tells how far the wall clock has moved against the monotonic one.
func newSkew() prometheus.Collector {
	began := time.Now()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "outboxd_clock_skew_seconds",
		Help: "How far the wall clock has been set, against the monotonic one, since the start: positive is forward."},
		func() float64 {
			now := time.Now()
			return (now.Round(0).Sub(began.Round(0)) - now.Sub(began)).Seconds() // Round(0) leaves the wall clock alone
		})
}

// build tells which program this is.
func (m *metrics) build(version string) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "outboxd_build_info", Help: "Always 1: the labels say which program this is.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()}})
	info.Set(1)
	started := prometheus.NewGauge(prometheus.GaugeOpts{Name: "outboxd_start_timestamp_seconds",
		Help: "When the daemon was started, in seconds since 1970."})
	started.SetToCurrentTime()
	m.registry.MustRegister(info, started)
}

// begin makes the series of a tool exist.
func (m workMetrics) begin(tool string) {
	m.claims.WithLabelValues(tool)
	m.duplicates.WithLabelValues(tool)
	m.conflicts.WithLabelValues(tool)
}

// submitted is told the code of the answer to a submit.
func (m *metrics) submitted(code string) {
	m.work.submits.WithLabelValues(within(submitCodes, code)).Inc()
}

// Claimed implements poller.Observer.
func (d *daemon) Claimed(tool string, lag time.Duration) {
	d.metrics.work.claims.WithLabelValues(d.metrics.tool(tool)).Inc()
	d.metrics.work.lag.Observe(lag.Seconds())
}

// TookIn implements poller.Observer.
func (d *daemon) TookIn(accepted, repeated, refused int) {
	for i, n := range []int{accepted, repeated, refused} {
		d.metrics.work.intake.WithLabelValues(intakeResults[i]).Add(float64(n))
	}
}

// Again implements poller.Observer.
func (d *daemon) Again(tool string, effect entry.Effect, conflict bool) {
	tool = d.metrics.tool(tool)
	if effect != entry.Idempotent {
		d.metrics.work.duplicates.WithLabelValues(tool).Inc()
	}
	if conflict {
		d.metrics.work.conflicts.WithLabelValues(tool).Inc()
	}
}
