package ledger

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// When the log is copied into the database.
const (
	checkpointPages = 1000            // pages written since the last one
	checkpointFar   = 4000            // pages left over at which the writer pauses for it
	idleTime        = 2 * time.Second // without a commit, after which the log is truncated
	idleRetry       = 10 * time.Second
)

// checkpointer copies the log into the database on a connection of its own, so
// that no writer waits for it. A failing checkpoint is silent in SQLite: its
// result is read and kept in Health.
type checkpointer struct {
	l      *Ledger
	wake   chan struct{} // capacity 1
	dirty  atomic.Bool   // something was committed since the log was truncated
	wanted atomic.Bool   // the log is far ahead: the committer runs one between two batches

	mu sync.Mutex // guards c: the committer may run it too
	c  *conn
}

func (k *checkpointer) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// loop runs until stop is closed.
func (k *checkpointer) loop(stop <-chan struct{}) {
	idle := time.NewTimer(idleTime)
	defer idle.Stop()
	for {
		select {
		case <-stop:
			return
		case <-k.wake:
			k.run()
			idle.Reset(idleTime)
		case <-idle.C:
			idle.Reset(k.rest())
		}
	}
}

// rest truncates the log when nothing has been written for a while. It returns
// when to look again.
func (k *checkpointer) rest() time.Duration {
	if !k.dirty.Swap(false) {
		return idleTime
	}
	if left, err := k.checkpoint(`PRAGMA wal_checkpoint(TRUNCATE)`); err != nil || left > 0 {
		k.dirty.Store(true)
		return idleRetry
	}
	return idleTime
}

func (k *checkpointer) run() {
	left, err := k.checkpoint(`PRAGMA wal_checkpoint(PASSIVE)`)
	k.wanted.Store(err == nil && left > checkpointFar && !k.wanted.Load())
}

// checkpoint returns how many pages of the log are left to copy.
func (k *checkpointer) checkpoint(pragma string) (left int64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.c == nil {
		return 0, ErrClosed
	}
	var busy, log, done int64
	err = k.c.one(pragma).Scan(&busy, &log, &done)
	if isBusy(err) {
		return 1, nil
	}
	if err != nil {
		err = fmt.Errorf("checkpoint: %w", err)
	}
	k.l.health.checkpoint(err)
	if busy != 0 && log == done {
		return 1, err
	}
	return log - done, err
}

// complete copies the whole log, whoever reads, or fails within the time given.
// The boot after an input/output error needs it: pages that the failed sync
// dropped are only safe once they stand in the database itself.
func (k *checkpointer) complete(limit time.Duration) error {
	for end := time.Now().Add(limit); ; {
		left, err := k.checkpoint(`PRAGMA wal_checkpoint(FULL)`)
		if err == nil && left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return errors.Join(ErrBusy, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (k *checkpointer) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.c
	k.c = nil
	if c == nil {
		return nil
	}
	return c.close()
}
