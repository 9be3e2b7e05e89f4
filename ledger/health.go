package ledger

import (
	"sync/atomic"
	"time"
)

// Health is what the ledger knows about its file.
type Health struct {
	Busy       time.Duration // how long another process has held the write lock; 0: not at all
	Full       bool          // the disk did not take the last write
	WALBytes   int64
	Checkpoint error // why the last checkpoint failed; nil: it did not
	Err        error // why nothing can be written any more; nil: it can
}

// health is written by the committer and the checkpointer, read by anybody.
type health struct {
	since   atomic.Pointer[time.Time] // since when the lock is waited for; nil: it is not
	isFull  atomic.Bool
	ckptErr atomic.Pointer[error]
}

func (h *health) busy(since time.Time) {
	if since.IsZero() {
		h.since.Store(nil)
		return
	}
	h.since.Store(&since)
}

func (h *health) full(is bool) {
	if h.isFull.Load() != is {
		h.isFull.Store(is)
	}
}

func (h *health) checkpoint(err error) { h.ckptErr.Store(&err) }

// Health reports the state of the file at this moment.
func (l *Ledger) Health() Health {
	h := Health{Full: l.health.isFull.Load(), WALBytes: l.file.walBytes(), Err: l.Err()}
	if since := l.health.since.Load(); since != nil {
		h.Busy = time.Since(*since)
	}
	if e := l.health.ckptErr.Load(); e != nil {
		h.Checkpoint = *e
	}
	return h
}
