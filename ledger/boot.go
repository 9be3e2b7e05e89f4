package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"modernc.org/sqlite"

	"github.com/outboxd/outboxd/chaos/point"
)

// bootRetryTime is how often opening looks whether a lock is free.
const bootRetryTime = 5 * time.Millisecond

// boot prepares the file for writing and commits the boot record. It waits while
// another process holds or recovers the file.
func (l *Ledger) boot(ctx context.Context, created bool) (c *conn, err error) {
	sqlite.StrictPragmas(true)
	wait := waiter{ctx, time.Now().Add(l.opts.Busy)}
	err = wait.whileBusy(func() (err error) {
		if c, err = connect(l.file.path, writing); err != nil {
			return err
		}
		if err = l.prepare(wait, c, created); err != nil {
			err = errors.Join(err, c.close())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// waiter bounds how long opening waits for others.
type waiter struct {
	ctx context.Context
	end time.Time
}

// whileBusy does fn until the lock that it wants is free.
func (w waiter) whileBusy(fn func() error) error {
	for {
		err := fn()
		if !errors.Is(err, ErrBusy) || !time.Now().Before(w.end) {
			return err
		}
		select {
		case <-w.ctx.Done():
			return errors.Join(err, w.ctx.Err())
		case <-time.After(bootRetryTime):
		}
	}
}

func (l *Ledger) prepare(wait waiter, c *conn, created bool) error {
	if err := requireWAL(c, created); err != nil {
		return err
	}
	if err := l.arm(c, created); err != nil {
		return err
	}
	if err := l.migrate(c); err != nil {
		return err
	}
	// A new connection for each look would cost more than what it waits for.
	err := wait.whileBusy(func() error { return openError(c.control(begin)) })
	if err != nil {
		return fmt.Errorf("begin boot record: %w", err)
	}
	err = l.record(c)
	if err == nil {
		point.Hit(point.Boot.Before())
		if err = c.control(commit); err == nil {
			point.Hit(point.Boot.After())
			return l.file.same()
		}
	}
	_ = c.control(rollback) // the error that led here is the one to report
	return fmt.Errorf("commit boot record: %w", openError(err))
}

// requireWAL sets WAL mode on a file that holds nothing yet and demands it of
// every other.
func requireWAL(c *conn, created bool) error {
	var mode string
	var pages int64
	// The count goes first: a file that another process creates meanwhile has its
	// first page and its mode at once, so a page that is seen comes with the mode.
	if err := c.one(`PRAGMA page_count`).Scan(&pages); err != nil {
		return fmt.Errorf("read page count: %w", openError(err))
	}
	if err := c.one(`PRAGMA journal_mode`).Scan(&mode); err != nil {
		return fmt.Errorf("read journal mode: %w", openError(err))
	}
	if mode == "wal" {
		return nil
	}
	if !created || pages > 0 {
		return ErrNotWAL
	}
	if err := c.one(`PRAGMA journal_mode = WAL`).Scan(&mode); err != nil {
		return fmt.Errorf("set WAL mode: %w", openError(err))
	}
	if mode != "wal" {
		return ErrNotWAL
	}
	return nil
}

// record creates the tables where they are missing and begins a boot epoch.
func (l *Ledger) record(c *conn) error {
	version, err := schemaVersion(c.one)
	switch {
	case err != nil:
		return err
	case version > SchemaVersion:
		return ErrNewer
	case version == 0:
		if err := createSchema(c, l.opts.ForChaos); err != nil {
			return err
		}
	}
	return c.one(`UPDATE outbox_meta SET boot_epoch = boot_epoch + 1, commits = commits + 1,
		committed_by = boot_epoch + 1 WHERE id = 1 RETURNING boot_epoch`).Scan(&l.epoch)
}

// schemaVersion is 0 for a file without outbox tables.
func schemaVersion(one func(string, ...any) One) (int64, error) {
	var n int64
	if err := one(`SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'outbox_meta'`).Scan(&n); err != nil {
		return 0, openError(err)
	}
	if n == 0 {
		return 0, nil
	}
	err := one(`SELECT schema_version FROM outbox_meta WHERE id = 1`).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("%w: outbox_meta is empty", ErrNotDatabase)
	}
	return n, err
}

// readable checks that a file opened for reading is one of ours.
func readable(v *View) error {
	version, err := schemaVersion(v.One)
	switch {
	case err != nil:
		return err
	case version == 0:
		return missing(v)
	case version > SchemaVersion:
		return ErrNewer
	case version < SchemaVersion:
		return ErrOlder
	}
	return nil
}

// missing is what a file without our tables lacks first. One that has them may be
// read in any mode: it may be a copy.
func missing(v *View) error {
	var mode string
	if err := v.One(`PRAGMA journal_mode`).Scan(&mode); err != nil {
		return fmt.Errorf("read journal mode: %w", err)
	}
	if mode != "wal" {
		return ErrNotWAL
	}
	return ErrNoSchema
}
