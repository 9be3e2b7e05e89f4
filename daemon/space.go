package daemon

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/systemd"
)

// spaceTick is how often a start that a full disk holds up is tried again, and
// startMore what it asks of the service manager each time.
const (
	spaceTick = time.Second
	startMore = time.Minute
)

// errStopped: the context ended while there was no space.
var errStopped = errors.New("stopped while waiting for space on the disk")

// untilSpace does what needs space on the disk, as often as it takes: ending
// would only make the service manager start this again and again. It returns
// errStopped where ctx ends first.
func (d *daemon) untilSpace(ctx context.Context, do func() error) error {
	tick := time.NewTicker(spaceTick)
	defer tick.Stop()
	for waits := false; ; waits = true {
		err := do()
		if !errors.Is(err, ledger.ErrDiskFull) || d.ledger != nil && d.ledger.Err() != nil {
			return err
		}
		if !waits {
			d.log.Error("the disk is full: waiting for space", zap.Error(err))
			d.tell(systemd.Status("waiting: the disk is full"))
		}
		d.tell(systemd.Extend(startMore))
		select {
		case <-ctx.Done():
			return errStopped
		case <-tick.C:
		}
	}
}

// poll runs the poller, which needs space for what it writes first.
func (d *daemon) poll(polling, work context.Context) (err error) {
	waited := d.untilSpace(polling, func() error {
		if err = d.poller.Run(polling, work); polling.Err() != nil {
			return nil // it has drained, and is not run again whatever it says
		}
		return err
	})
	switch {
	case errors.Is(waited, errStopped):
		return nil
	case waited != nil:
		return waited
	}
	return err
}
