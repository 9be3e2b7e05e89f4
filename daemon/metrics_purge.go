package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxd/outboxd/intake"
)

// newPurged makes the counter of what purges removed.
func newPurged() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outboxd_purged_total",
		Help: "Rows that purges removed after their retention, and looks at old rows that could not be removed (kept)."}, []string{"kind"})
	for _, kind := range []string{"operation", "refused", "tombstone", "kept"} {
		c.WithLabelValues(kind)
	}
	return c
}

func (m *metrics) purged(sum intake.Purged) {
	for kind, n := range map[string]int{
		"operation": sum.Operations, "refused": sum.Refused, "tombstone": sum.Tombstones, "kept": sum.Kept,
	} {
		m.purgedRows.WithLabelValues(kind).Add(float64(n))
	}
}
