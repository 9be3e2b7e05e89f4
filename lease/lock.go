// Package lease decides when a right to work begins and ends: the lock that one
// daemon holds on a file, the takeover of what a dead one had claimed, and the
// keeper that renews this process's leases and notices when one is lost.
//
// The lock proves that the previous daemon is dead, so its leases end at once. A
// process never ends its own leases by time: a renewal that comes late is valid
// while the token is still the entry's.
package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/ledger"
)

// Mode of a Lock.
type Mode int

// The modes: one daemon, or restore and migrate, against any number of one-shot
// commands.
const (
	Exclusive Mode = unix.LOCK_EX
	Shared    Mode = unix.LOCK_SH
)

// Holder is what the lock file says of the process that holds it exclusively.
type Holder struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Since   time.Time `json:"since"`
}

// HeldError says that another process holds the lock.
type HeldError struct{ Holder Holder }

// Error names the holder where the lock file does.
func (e *HeldError) Error() string {
	if e.Holder.PID == 0 {
		return "another outboxd process holds this database"
	}
	return fmt.Sprintf("outboxd %s, process %d, has held this database since %s: stop it first, or work through it",
		e.Holder.Command, e.Holder.PID, e.Holder.Since.UTC().Format(time.RFC3339))
}

// ErrLockReplaced says that the lock file's path no longer names the file that is locked.
var ErrLockReplaced = errors.New("the lock file was moved, removed or replaced while it was held")

// Lock is a flock on a file beside the database. The database itself is never
// opened for it.
type Lock struct {
	f    *os.File
	path string
	mode Mode
	io   mark
}

// mark is what the lock file keeps from one holder to the next.
type mark struct {
	Holder
	Begun string `json:"begun,omitempty"` // tells the holder from a later process of its number
	// Failed: the last daemon ended on an input/output error, so the log must be
	// copied completely before anything is answered.
	Failed bool `json:"io_failed,omitempty"`
}

// lockRetry is how often a lock that is waited for is tried, and orphanTime how
// long the children of a holder that was killed have to let go of it.
const (
	lockRetry  = 20 * time.Millisecond
	orphanTime = 2 * time.Second
)

// Acquire locks the file beside the database at path. It waits until ctx ends for
// one-shot commands to go, but not for a daemon: *HeldError is answered at once,
// unless the daemon that the file names is dead. Then it is answered if the lock
// is not free within two seconds.
func Acquire(ctx context.Context, path string, mode Mode, me Holder) (*Lock, error) {
	real, err := realPath(path)
	if err != nil {
		return nil, err
	}
	if err := ledger.CheckOwner(real); err != nil {
		return nil, err
	}
	l := &Lock{path: real + lockSuffix, mode: mode}
	for orphaned := time.Now().Add(orphanTime); ; {
		err := l.try(mode)
		if err == nil {
			if err = l.enter(mode, me); err == nil {
				return l, nil
			}
			return nil, errors.Join(err, l.Unlock())
		}
		err = l.yield(err, mode)
		if held := (*HeldError)(nil); err != nil && (!errors.As(err, &held) || !l.io.gone() || time.Now().After(orphaned)) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, &HeldError{} // who holds it shared is not recorded
		case <-time.After(lockRetry):
		}
	}
}

// yield is nil when the lock is worth waiting for: the file was replaced in that
// moment, or only one-shot commands hold it.
func (l *Lock) yield(err error, mode Mode) error {
	switch {
	case errors.Is(err, ErrLockReplaced):
		return nil
	case !errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("lock database: %w", err)
	case mode == Shared || l.try(Shared) != nil:
		return &HeldError{Holder: l.io.Holder}
	}
	if err := l.Unlock(); err != nil {
		return fmt.Errorf("unlock database: %w", err)
	}
	return nil
}

// realPath resolves symbolic links, also for a file that is not there yet.
func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("resolve database path: %w", err)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real, nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", fmt.Errorf("resolve database directory: %w", errors.Unwrap(err))
	}
	return filepath.Join(dir, filepath.Base(abs)), nil
}

func (l *Lock) try(mode Mode) error {
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return full(errors.Unwrap(err))
	}
	likeDatabase(f, strings.TrimSuffix(l.path, lockSuffix))
	err = unix.Flock(int(f.Fd()), int(mode)|unix.LOCK_NB)
	l.io = readMark(f)
	if err == nil {
		l.f = f
		if err = l.Check(); err == nil {
			return nil
		}
	}
	return errors.Join(err, f.Close())
}

// lockSuffix makes the name of the lock file of that of the database.
const lockSuffix = ".lock"

// likeDatabase gives the lock file to the group that the database is shared with:
// its members lock it too. Where that is not ours to do, its owner does it.
func likeDatabase(f *os.File, database string) {
	var db, lock unix.Stat_t
	if unix.Stat(database, &db) != nil || unix.Fstat(int(f.Fd()), &lock) != nil || lock.Uid != uint32(os.Geteuid()) {
		return
	}
	mode := 0o600 | db.Mode&0o060
	if mode == lock.Mode&0o777 && db.Gid == lock.Gid {
		return
	}
	if err := f.Chown(-1, int(db.Gid)); err == nil {
		_ = f.Chmod(os.FileMode(mode)) // who is kept out by it is told so
	}
}

func readMark(f *os.File) (m mark) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, sidecarAt))
	if err != nil || json.Unmarshal(b, &m) != nil {
		return mark{} // it only names the holder
	}
	return m
}

func (l *Lock) enter(mode Mode, me Holder) error {
	if mode != Exclusive {
		return nil
	}
	l.io.Holder = me
	_, l.io.Begun = process(me.PID)
	return l.write()
}

// write replaces the mark. It is padded, so that a reader never sees half of an
// older and longer one.
func (l *Lock) write() error {
	b, err := json.Marshal(l.io)
	if err != nil {
		return fmt.Errorf("encode lock file: %w", err)
	}
	if _, err := l.f.WriteAt(fmt.Appendf(nil, "%-511s\n", b), 0); err != nil {
		return fmt.Errorf("write lock file: %w", full(errors.Unwrap(err)))
	}
	return nil
}

// full tells a disk without space from other errors of the system.
func full(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ledger.ErrDiskFull, err)
	}
	return err
}

// Check is ErrLockReplaced when the path names another file than the one that is
// locked: then another daemon may hold that one.
func (l *Lock) Check() error {
	held, err := l.f.Stat()
	if err != nil {
		return fmt.Errorf("look at lock file: %w", errors.Unwrap(err))
	}
	named, err := os.Stat(l.path)
	if err != nil || !os.SameFile(held, named) {
		return ErrLockReplaced
	}
	return nil
}

// Failed reports whether the last daemon ended on an input/output error.
func (l *Lock) Failed() bool { return l.io.Failed }

// SetFailed records whether this daemon ends on one, for the next start.
func (l *Lock) SetFailed(failed bool) error {
	if l.io.Failed == failed {
		return nil
	}
	l.io.Failed = failed
	if err := l.write(); err != nil {
		return err
	}
	return l.f.Sync()
}

// Unlock gives the lock back. The file stays: removing it would let two daemons
// hold two files of the same name.
func (l *Lock) Unlock() error { return l.f.Close() }
