package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/projection"
)

// enqueuer is made once: it needs no configuration.
var enqueuer = sync.OnceValues(projection.NewEnqueuer)

// follows does what follows from the end of entries, in the transaction in which
// they ended. What it enqueues is seen by a pass that comes after that commit.
func (d *daemon) follows(tx *ledger.Tx, operations []int64) error {
	q, err := enqueuer()
	if err != nil {
		return err
	}
	n, err := q.Ended(tx, operations)
	if err != nil {
		return err
	}
	told, err := d.hook.Load().Ended(tx, operations)
	if n+told > 0 && d.poller != nil {
		d.poller.Wake()
	}
	return err
}

// noteSpace has the hook told of a disk that was full, once it takes that. Only the
// poller's goroutine calls it.
func (d *daemon) noteSpace() {
	full := d.ledger.Health().Full
	switch {
	case full && d.fullSince.IsZero():
		d.fullSince = d.now()
	case !full && !d.fullSince.IsZero():
		since := d.fullSince
		if d.fullSince = (time.Time{}); d.hook.Load() == nil {
			return
		}
		err := d.ledger.Write(context.Background(), func(tx *ledger.Tx) error { return d.hook.Load().DiskFull(tx, since) })
		if err != nil {
			d.fullSince = since // tried again at the next pass
		}
	}
}
