package daemon

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/ledger"
)

// How often the size of the log is looked at.
const logLook = 5 * time.Second

// longLog warns when the log has grown because somebody keeps a read transaction
// open, and says when it is over. The log is not shortened by force: it starts
// again by itself once that reader has gone.
func (d *daemon) longLog(ctx context.Context) error {
	tick := time.NewTicker(logLook)
	defer tick.Stop()
	for long := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		bytes := d.ledger.Health().WALBytes
		switch {
		case bytes >= largeLog && !long:
			long = true
			d.log.Warn("the write-ahead log has grown: somebody keeps a read transaction open, or writes faster than is copied",
				zap.Int64("bytes", bytes), zap.Strings("readers", d.readers()))
		case bytes < largeLog/2 && long:
			long = false
			d.log.Info("the write-ahead log is short again", zap.Int64("bytes", bytes))
		}
	}
}

// readers names the other processes that read at this moment.
func (d *daemon) readers() (list []string) {
	users, err := ledger.Users(d.ledger.Path())
	if err != nil {
		return nil // not to be seen here
	}
	for _, u := range users {
		if u.Reading && u.PID != os.Getpid() {
			list = append(list, fmt.Sprintf("%d (%s)", u.PID, u.Command))
		}
	}
	return list
}
