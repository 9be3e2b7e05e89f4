package daemon

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/poller"
)

// How long a scrape reads the file at most, and for how long what was read serves
// the scrapes that follow: at least countedTime, and so long that all of them
// together take readShare of one reader.
const (
	scrapeTime  = 5 * time.Second
	countedTime = time.Second
	readShare   = 20
)

// stock collects what stands in the file, from one read snapshot. A file that
// cannot be read leaves its metrics out; those about the file itself remain.
type stock struct {
	l *ledger.Ledger
	p *poller.Poller

	all                                           []*prometheus.Desc
	entries, claimable, unknown, held             *prometheus.Desc
	load, toolAge, paused, breaker                *prometheus.Desc
	waiting, parked, refused                      *prometheus.Desc
	size, wal, full, busy, checkpoint, down, lost *prometheus.Desc

	mu   sync.Mutex // guards what follows; held while the file is read
	keep time.Duration
	last *count
	err  error // of last
	next time.Time
}

func newStock(l *ledger.Ledger, p *poller.Poller) *stock {
	s := &stock{l: l, p: p, keep: countedTime}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc(name, help, labels, nil)
		s.all = append(s.all, d)
		return d
	}
	s.entries = desc("outboxd_entries", "Entries in the file, by state.", "state")
	s.claimable = desc("outboxd_oldest_claimable_age_seconds", "How long the oldest entry that could be attempted has been due, paused tools left out; 0: none is.")
	s.unknown = desc("outboxd_oldest_unknown_age_seconds", "How long the oldest unknown entry has been without proof; 0: there is none.")
	s.load = desc("outboxd_tool_entries", "Entries of a tool that are not over, or wait for a person, by what they wait for.", "tool", "state")
	s.toolAge = desc("outboxd_tool_oldest_due_age_seconds", "How long the oldest entry of a tool that could be attempted has been due, also while it is paused; 0: none is.", "tool")
	s.paused = desc("outboxd_tool_paused", "1 while a tool is paused, by a person or because it looked misconfigured.", "tool")
	s.breaker = desc("outboxd_tool_breaker_open", "1 while a tool's destination is left alone because it fails.", "tool")
	s.waiting = desc("outboxd_intake_waiting", "Rows of outbox_intake that the next looks take in.")
	s.parked = desc("outboxd_intake_parked", "Rows of outbox_intake that wait for their tool to be configured.")
	s.refused = desc("outboxd_intake_refused", "Rows in outbox_refused: they could not become operations.")
	s.held = desc("outboxd_held", "1 while the database is one that was put back from an older copy and not released: nothing is sent.")
	s.size = desc("outboxd_database_bytes", "Size of the database file, without the write-ahead log.")
	s.wal = desc("outboxd_wal_bytes", "Size of the write-ahead log.")
	s.full = desc("outboxd_disk_full", "1 while the disk does not take writes.")
	s.busy = desc("outboxd_database_busy_seconds", "How long another process has held the write lock; 0: it does not.")
	s.checkpoint = desc("outboxd_checkpoint_failing", "1 while the last checkpoint failed: the log grows.")
	s.down = desc("outboxd_database_down", "1 once nothing can be written any more.")
	s.lost = desc("outboxd_abandoned_handlers", "Go handlers that ignored their time limit and still run.")
	return s
}

// Describe implements prometheus.Collector.
func (s *stock) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range s.all {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *stock) Collect(ch chan<- prometheus.Metric) {
	h := s.l.Health()
	if st, err := os.Stat(s.l.Path()); err == nil { // stat only: no descriptor of it may be closed here
		gauge(ch, s.size, float64(st.Size()))
	}
	gauge(ch, s.wal, float64(h.WALBytes))
	gauge(ch, s.full, one(h.Full))
	gauge(ch, s.busy, h.Busy.Seconds())
	gauge(ch, s.checkpoint, one(h.Checkpoint != nil))
	gauge(ch, s.down, one(h.Err != nil))
	gauge(ch, s.lost, float64(abandoned(s.p.Work())))
	c, err := s.counted()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(s.entries, err)
		return
	}
	for _, state := range entry.States {
		gauge(ch, s.entries, float64(c.entries[state]), string(state))
	}
	gauge(ch, s.claimable, c.age(c.due))
	gauge(ch, s.unknown, c.age(c.unproven))
	gauge(ch, s.held, one(c.held))
	gauge(ch, s.waiting, float64(c.intake.Waiting))
	gauge(ch, s.parked, float64(c.intake.Parked))
	gauge(ch, s.refused, float64(c.intake.Refused))
	for tool, t := range c.tools {
		s.tool(ch, c, tool, t)
	}
}

func (s *stock) tool(ch chan<- prometheus.Metric, c *count, name string, t *toolCount) {
	for state, n := range map[string]int64{"in_flight": t.load.InFlight, "due": t.load.Due, "later": t.load.Later,
		"waiting": t.load.Waiting, "unknown": t.load.Unknown, "dead": t.load.Dead} {
		gauge(ch, s.load, float64(n), name, state)
	}
	gauge(ch, s.toolAge, c.age(t.load.OldestDue), name)
	gauge(ch, s.paused, one(t.paused), name)
	gauge(ch, s.breaker, one(t.breaker), name)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// abandoned is how many Go functions were left behind and still run.
func abandoned(w *poller.Work) (n int64) {
	for _, pair := range w.Handlers {
		if h, ok := pair.Handler.(interface{ Abandoned() int64 }); ok {
			n += h.Abandoned()
		}
	}
	return n
}

// count is what was read at one time.
type count struct {
	now           time.Time
	entries       map[entry.State]int64
	due, unproven time.Time // of the oldest; zero: none
	intake        intake.Stock
	held          bool
	tools         map[string]*toolCount // those that are configured, and other
}

type toolCount struct {
	paused, breaker bool
	load            poller.Load
}

// age in seconds. An instant ahead of the clock is 0 seconds old.
func (c *count) age(since time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(0, c.now.Sub(since).Seconds())
}

// counted is what was read last, unless that is too long ago.
func (s *stock) counted() (*count, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began := time.Now(); s.keep == 0 || !began.Before(s.next) {
		s.last, s.err = s.count()
		now := time.Now()
		s.next = now.Add(max(s.keep, min(readShare*now.Sub(began), time.Minute)))
	}
	return s.last, s.err
}

func (s *stock) count() (*count, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	c := &count{now: s.l.Now(), entries: map[entry.State]int64{}, tools: map[string]*toolCount{other: {}}}
	known, err := s.p.Tools(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range known {
		if t.Configured {
			c.tools[t.Name] = &toolCount{paused: t.Paused, breaker: !t.Breaker.IsZero()}
		}
	}
	err = s.l.Read(ctx, func(v *ledger.View) error {
		loads, err := poller.Loads(v, c.now)
		if err != nil {
			return err
		}
		if c.intake, err = intake.Count(v); err != nil {
			return err
		}
		standing, err := ledger.Stand(v)
		if err != nil {
			return err
		}
		c.held = !standing.Restored.IsZero()
		var all int64
		if err := v.One(`SELECT count(*) FROM outbox_entry`).Scan(&all); err != nil {
			return fmt.Errorf("count entries: %w", err)
		}
		c.sum(loads, all)
		return nil
	})
	return c, err
}

// sum adds up what was read of the tools: what nobody counts is delivered.
func (c *count) sum(loads map[string]poller.Load, all int64) {
	for name, l := range loads {
		for state, n := range l.States() {
			c.entries[state] += n
			all -= n
		}
		c.unproven = older(c.unproven, l.OldestDoubt)
		t, configured := c.tools[name]
		if !configured {
			c.tools[other].load = c.tools[other].load.Plus(l)
			continue
		}
		t.load = l
		if !t.paused {
			c.due = older(c.due, l.OldestDue)
		}
	}
	c.entries[entry.Delivered] = all
}

func older(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
