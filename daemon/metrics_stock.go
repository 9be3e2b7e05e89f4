package daemon

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/poller"
)

// scrapeTime bounds how long a scrape reads the file. What was read serves the
// scrapes of the next countedTime, too: however many there are, they take one
// reader at most.
const (
	scrapeTime  = 5 * time.Second
	countedTime = time.Second
)

// stock collects what stands in the file, from one read snapshot. A file that
// cannot be read leaves its metrics out; those about the file itself remain.
type stock struct {
	l *ledger.Ledger
	p *poller.Poller

	entries, claimable, unknown, parked *prometheus.Desc
	wal, full, busy, checkpoint, down   *prometheus.Desc

	mu   sync.Mutex // guards what follows; held while the file is read
	keep time.Duration
	last *count
	err  error // of last
	read time.Time
}

func newStock(l *ledger.Ledger, p *poller.Poller) *stock {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &stock{l: l, p: p, keep: countedTime,
		entries:    desc("outboxd_entries", "Entries in the file, by state.", "state"),
		claimable:  desc("outboxd_oldest_claimable_age_seconds", "How long the oldest entry that could be attempted has been due; 0: none is."),
		unknown:    desc("outboxd_oldest_unknown_age_seconds", "How long the oldest unknown entry has been without proof; 0: there is none."),
		parked:     desc("outboxd_intake_parked", "Intake rows that wait for their tool to be configured."),
		wal:        desc("outboxd_wal_bytes", "Size of the write-ahead log."),
		full:       desc("outboxd_disk_full", "1 while the disk does not take writes."),
		busy:       desc("outboxd_database_busy_seconds", "How long another process has held the write lock; 0: it does not."),
		checkpoint: desc("outboxd_checkpoint_failing", "1 while the last checkpoint failed: the log grows."),
		down:       desc("outboxd_database_down", "1 once nothing can be written any more."),
	}
}

// Describe implements prometheus.Collector.
func (s *stock) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.entries, s.claimable, s.unknown, s.parked,
		s.wal, s.full, s.busy, s.checkpoint, s.down} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *stock) Collect(ch chan<- prometheus.Metric) {
	h := s.l.Health()
	gauge(ch, s.wal, float64(h.WALBytes))
	gauge(ch, s.full, flag(h.Full))
	gauge(ch, s.busy, h.Busy.Seconds())
	gauge(ch, s.checkpoint, flag(h.Checkpoint != nil))
	gauge(ch, s.down, flag(h.Err != nil))
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
	gauge(ch, s.parked, float64(c.parked))
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// count is what was read at one time.
type count struct {
	now           time.Time
	entries       map[entry.State]int64
	due, unproven time.Time // of the oldest; zero: none
	parked        int
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
	if s.last == nil || time.Since(s.read) >= s.keep {
		s.last, s.err = s.count()
		s.read = time.Now()
	}
	return s.last, s.err
}

func (s *stock) count() (*count, error) {
	tools := s.p.Work().Registry.Names()
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	c := &count{now: s.l.Now(), entries: map[entry.State]int64{}}
	err := s.l.Read(ctx, func(v *ledger.View) (err error) {
		if c.parked, err = intake.Parked(v); err != nil {
			return err
		}
		if err := c.states(v); err != nil {
			return fmt.Errorf("count entries: %w", err)
		}
		return c.oldest(v, tools)
	})
	return c, err
}

// states counts what is not delivered by the partial indexes, and the rest by
// what all entries are more.
func (c *count) states(v *ledger.View) error {
	var pending, claimed, sending, all int64
	err := v.One(`SELECT COALESCE(SUM(state = 'pending'), 0), COALESCE(SUM(state = 'claimed'), 0), COALESCE(SUM(state = 'sending'), 0)
		FROM outbox_entry INDEXED BY outbox_entry_due WHERE due_at IS NOT NULL`).Scan(&pending, &claimed, &sending)
	if err != nil {
		return err
	}
	c.entries[entry.Pending], c.entries[entry.Claimed], c.entries[entry.Sending] = pending, claimed, sending
	err = v.Each(func(r *ledger.Row) error {
		var state entry.State
		var n int64
		err := r.Scan(&state, &n)
		c.entries[state] = n
		return err
	}, `SELECT state, count(*) FROM outbox_entry INDEXED BY outbox_entry_kept
		WHERE (state = 'waiting' OR state = 'unknown' OR state = 'dead' OR state = 'discarded') GROUP BY state`)
	if err != nil {
		return err
	}
	if err := v.One(`SELECT count(*) FROM outbox_entry`).Scan(&all); err != nil {
		return err
	}
	for _, n := range c.entries {
		all -= n
	}
	c.entries[entry.Delivered] = all
	return nil
}

// oldest finds since when an entry of these tools could be attempted, unless its
// tool is paused, and since when an entry is without proof.
func (c *count) oldest(v *ledger.View, tools []string) error {
	for _, tool := range tools {
		var at time.Time
		err := v.One(`SELECT due_at FROM outbox_entry WHERE tool_name = ?1 AND due_at <= ?2 AND state = 'pending'
			AND NOT EXISTS (SELECT 1 FROM outbox_tool WHERE tool_name = ?1 AND paused = 1)
			ORDER BY due_at LIMIT 1`, tool, c.now).Scan(&at)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return fmt.Errorf("find oldest claimable entry: %w", err)
		}
		if c.due.IsZero() || at.Before(c.due) {
			c.due = at
		}
	}
	err := v.One(`SELECT MIN(unproven_since) FROM outbox_entry INDEXED BY outbox_entry_kept
		WHERE (state = 'waiting' OR state = 'unknown' OR state = 'dead' OR state = 'discarded') AND state = 'unknown'`).Scan(&c.unproven)
	if err != nil {
		return fmt.Errorf("find oldest unknown entry: %w", err)
	}
	return nil
}
