package daemon

import (
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/systemd"
)

// An upgrade of the schema may take longer than the service manager waits for a
// start: it is asked for more time as long as the upgrade moves, and only then, so
// that one that hangs is ended.
const (
	upgradeLook = 5 * time.Second
	upgradeMore = 30 * time.Second
	upgradeMove = 20 * time.Millisecond // of processor time, in upgradeLook
)

// upgrade tells of the steps of an upgrade while the file is opened.
type upgrade struct {
	d     *daemon
	steps atomic.Int64
	done  chan struct{}
	ended chan struct{}
}

// step is told of each step before it is done.
func (u *upgrade) step(from, to int64) {
	first := u.steps.Add(1) == 1
	percent := 100 * (from - 1) / max(1, to-1)
	u.d.log.Info("upgrading the database", zap.Int64("from", from), zap.Int64("to", to))
	u.d.tell(systemd.Status(fmt.Sprintf("upgrading the database: version %d of %d, %d%%", from, to, percent)))
	u.d.tell(systemd.Extend(upgradeMore))
	if first {
		u.done, u.ended = make(chan struct{}), make(chan struct{})
		go u.extend()
	}
}

// end waits until nothing is told any more.
func (u *upgrade) end() {
	if u.done != nil {
		close(u.done)
		<-u.ended
	}
}

func (u *upgrade) extend() {
	defer close(u.ended)
	tick := time.NewTicker(upgradeLook)
	defer tick.Stop()
	seen, used := u.steps.Load(), processorTime()
	for {
		select {
		case <-u.done:
			return
		case <-tick.C:
		}
		steps, now := u.steps.Load(), processorTime()
		if steps != seen || now-used >= upgradeMove {
			u.d.tell(systemd.Extend(upgradeMore))
		}
		seen, used = steps, now
	}
}

// processorTime is what this process has used so far, in which a file that is
// waited for has no part.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
