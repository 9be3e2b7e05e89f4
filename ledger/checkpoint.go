package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outboxd/outboxd/chaos/point"
)

// When the log is copied into the database.
const (
	checkpointPages = 1000            // pages written since the last one
	checkpointFar   = 4000            // pages in the log at which the writer pauses for it
	idleTime        = 2 * time.Second // without a commit, after which the log is truncated
	idleRetry       = 10 * time.Second

	completeRetryTime = 10 * time.Millisecond
)

// checkpointer copies the log into the database on a connection of its own, so
// that no writer waits for it. A failing checkpoint is silent in SQLite: its
// result is read and kept in Health.
type checkpointer struct {
	l       *Ledger
	wake    chan struct{} // capacity 1
	commits atomic.Int64  // batches that this process has written
	wanted  atomic.Bool   // the log is long: the committer runs one between two batches

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
	rest := rest{k: k, done: -1}
	for {
		select {
		case <-stop:
			return
		case <-k.wake:
			k.run()
			idle.Reset(idleTime)
		case <-idle.C:
			idle.Reset(rest.look())
		}
	}
}

// rest truncates the log when nothing has been written for a while.
type rest struct {
	k    *checkpointer
	seen int64 // commits at the last look
	done int64 // commits when the log was truncated
}

// look returns when to look again.
func (r *rest) look() time.Duration {
	n := r.k.commits.Load()
	idle := n == r.seen
	r.seen = n
	if !idle || n == r.done {
		return idleTime
	}
	if _, left, err := r.k.checkpoint(`PRAGMA wal_checkpoint(TRUNCATE)`); err != nil || left > 0 {
		return idleRetry
	}
	r.done = n
	return idleTime
}

// run copies what it can without anybody waiting for it. The log starts again
// from its beginning only if a transaction begins while all of it is copied,
// which beside a busy committer never happens: while it is long, the committer
// runs every second one itself, between two batches.
func (k *checkpointer) run() {
	long, _, err := k.checkpoint(`PRAGMA wal_checkpoint(PASSIVE)`)
	k.wanted.Store(err == nil && long > checkpointFar && !k.wanted.Load())
}

// checkpoint returns how many pages the log has, and how many are left to copy.
func (k *checkpointer) checkpoint(pragma string) (long, left int64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.c == nil {
		return 0, 0, ErrClosed
	}
	var busy, done int64
	point.Hit(point.Checkpoint.Before())
	err = k.c.one(pragma).Scan(&busy, &long, &done)
	point.Hit(point.Checkpoint.After())
	if isBusy(err) {
		return 0, 1, nil
	}
	if err != nil {
		err = fmt.Errorf("checkpoint: %w", err)
	}
	k.l.health.checkpoint(err)
	if sqliteCode(err) == sqlite3.SQLITE_IOERR_FSYNC {
		k.l.fail(errors.Join(ErrCommitUnknown, err)) // a second sync would succeed and prove nothing
	}
	if busy != 0 && long == done {
		return long, 1, err
	}
	return long, long - done, err
}

// complete copies the whole log, whoever reads, or fails within the time given.
// The boot after an input/output error needs it: pages that the failed sync
// dropped are only safe once they stand in the database itself.
func (k *checkpointer) complete(ctx context.Context, limit time.Duration) error {
	for end := time.Now().Add(limit); ; {
		_, left, err := k.checkpoint(`PRAGMA wal_checkpoint(FULL)`)
		switch {
		case err != nil:
			return openError(err)
		case left == 0:
			return nil
		case time.Now().After(end):
			return ErrBusy
		}
		select {
		case <-ctx.Done():
			return errors.Join(ErrBusy, ctx.Err())
		case <-time.After(completeRetryTime):
		}
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
