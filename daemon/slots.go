package daemon

import (
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// What an attempt needs of descriptors at most (a program: its three pipes), and
// the file, the sockets and their clients beside them.
const (
	filesPerSlot = 3
	filesBeside  = 64
)

// slots is how many attempts may run at a time: as many as the configuration
// says, unless the process may not open enough files for them. Attempts that
// fail for want of a descriptor would only use up their retries.
func (d *daemon) slots() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return d.cfg.Worker.Concurrency
	}
	n := slotsWithin(limit.Cur, d.cfg.Worker.Concurrency)
	if n < d.cfg.Worker.Concurrency {
		d.log.Warn("too few open files allowed for worker.concurrency: it is lowered", zap.Int("concurrency", n),
			zap.Uint64("files", limit.Cur), zap.Int("needed", filesBeside+filesPerSlot*d.cfg.Worker.Concurrency))
	}
	return n
}

// slotsWithin is at least one.
func slotsWithin(files uint64, want int) int {
	if files >= filesBeside+filesPerSlot*uint64(want) {
		return want
	}
	return max(1, (int(files)-filesBeside)/filesPerSlot)
}
