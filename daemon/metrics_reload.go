package daemon

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reloadMetrics tell which config is in force.
type reloadMetrics struct {
	total  *prometheus.CounterVec
	took   prometheus.Histogram
	failed prometheus.Gauge
	loaded prometheus.Gauge
}

func newReloadMetrics(r prometheus.Registerer) reloadMetrics {
	m := reloadMetrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outboxd_config_reloads_total",
			Help: "Reloads of the config, by what became of them."}, []string{"result"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "outboxd_config_reload_duration_seconds",
			Help: "Time that a reload took, good or not.", Buckets: []float64{.005, .025, .1, .5, 1, 5, 20}}),
		failed: prometheus.NewGauge(prometheus.GaugeOpts{Name: "outboxd_config_reload_failing",
			Help: "1 while the last reload failed: the daemon goes on with an older config than the file's."}),
		loaded: prometheus.NewGauge(prometheus.GaugeOpts{Name: "outboxd_config_loaded_timestamp_seconds",
			Help: "When the config that is in force was loaded, in seconds since 1970."}),
	}
	m.loaded.SetToCurrentTime()
	for _, result := range []string{"ok", "failed"} {
		m.total.WithLabelValues(result)
	}
	r.MustRegister(m.total, m.took, m.failed, m.loaded)
	return m
}

// logs has what was kept out of the log counted.
func (m *metrics) logs(silenced func() uint64) {
	if silenced == nil {
		silenced = func() uint64 { return 0 }
	}
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "outboxd_log_lines_dropped_total",
		Help: "Lines that were kept out of the log because there were too many of one message."},
		func() float64 { return float64(silenced()) }))
}

// reloaded is told what became of a reload.
func (m *metrics) reloaded(err error, took time.Duration) {
	m.reloads.took.Observe(took.Seconds())
	m.reloads.failed.Set(one(err != nil))
	if err != nil {
		m.reloads.total.WithLabelValues("failed").Inc()
		return
	}
	m.reloads.total.WithLabelValues("ok").Inc()
	m.reloads.loaded.SetToCurrentTime()
}
