package daemon

import (
	"sync"

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
	if n > 0 && d.poller != nil {
		d.poller.Wake()
	}
	return err
}
