package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/chaos/point"
)

// Restored is what a Restore did.
type Restored struct {
	Copied
	Kept string // name, beside the database, of the file that was replaced; empty: there was none
}

// Restore puts a copy of the database at from in the place of the one at path, in
// one step: whoever looks finds the old file or the new one, whole. The old one is
// kept beside it under another name. The caller holds the exclusive lock; a file
// that any process still has open is ErrInUse.
//
// The copy says that it was restored, and when: what was live in it may have been
// sent since it was made, and the next start must not go on as if it had not.
func Restore(ctx context.Context, path, from string, o CopyOptions, now time.Time) (r Restored, err error) {
	to, old, err := restoreTarget(path, from)
	if err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), ".outboxd-restore-")
	if err != nil {
		return r, pathError(err)
	}
	defer func() { err = errors.Join(err, pathError(os.RemoveAll(dir))) }()
	staged := filepath.Join(dir, "copy")
	if r.Copied, err = copySource(ctx, from, staged, o.Foreign); err != nil {
		return r, err
	}
	if err := markRestored(ctx, staged, now); err != nil {
		return r, fmt.Errorf("mark the copy: %w", err)
	}
	if old == nil {
		return r, place(staged, to, false)
	}
	if err := alike(staged, old); err != nil {
		return r, err
	}
	if err := armRestore(ctx, to, o.Armed); err != nil {
		return r, err
	}
	r.Kept, err = exchange(ctx, staged, to, now)
	return r, err
}

// restoreTarget is the real path of the file to be replaced and what it is; nil:
// there is none.
func restoreTarget(path, from string) (to string, old fs.FileInfo, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", nil, fmt.Errorf("resolve database path: %w", err)
	}
	source, err := os.Stat(from)
	if err != nil {
		return "", nil, pathError(err)
	}
	if to, err = filepath.EvalSymlinks(abs); errors.Is(err, fs.ErrNotExist) {
		for _, suffix := range []string{"-wal", "-shm", "-journal"} {
			if _, err := os.Lstat(abs + suffix); err == nil {
				return "", nil, ErrLeftover
			}
		}
		return abs, nil, nil
	}
	if err != nil {
		return "", nil, pathError(err)
	}
	if old, err = os.Stat(to); err != nil {
		return "", nil, pathError(err)
	}
	if !old.Mode().IsRegular() || os.SameFile(old, source) {
		return "", nil, ErrTarget
	}
	return to, old, inUse(to)
}

// copySource copies a backup wherever it lies: also from where nothing can be
// written. One that was closed is read without making a log and its index.
func copySource(ctx context.Context, from, to string, foreign bool) (Copied, error) {
	how := frozen
	if _, err := os.Lstat(from + "-wal"); err == nil {
		how = readOnly
	}
	return copyFile(ctx, from, how, to, foreign)
}

// markRestored brings a copy up to date and leaves the mark of a restore in it.
func markRestored(ctx context.Context, path string, now time.Time) error {
	l, err := Open(ctx, path, Options{Migrate: true, Readers: 1, AllowNetworkFS: true})
	if err != nil {
		return err
	}
	err = l.Write(ctx, func(tx *Tx) error {
		_, err := tx.Exec(`UPDATE outbox_meta SET generation = generation + 1, restored_at = ? WHERE id = 1`, now)
		return err
	})
	if err = errors.Join(err, l.Close()); err != nil {
		return err
	}
	if _, err := os.Lstat(path + "-wal"); err == nil {
		return errors.New("its log is still there after it was closed")
	}
	return nil
}

// alike gives a copy the mode, the owner and the group of the file that it
// replaces, but nothing for others.
func alike(staged string, old fs.FileInfo) error {
	if err := os.Chmod(staged, old.Mode().Perm()&0o660); err != nil {
		return pathError(err)
	}
	if st, ok := old.Sys().(*syscall.Stat_t); ok {
		if err := os.Lchown(staged, int(st.Uid), int(st.Gid)); err != nil {
			return pathError(err)
		}
	}
	return nil
}

// exchange puts the staged file in the place of the old one, which gets a name of
// its own first. Nobody has it open, and it is held so that nobody begins to.
func exchange(ctx context.Context, staged, to string, now time.Time) (kept string, err error) {
	release, err := seize(ctx, to)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, release()) }()
	point.Hit(point.Restore.Before())
	defer point.Hit(point.Restore.After())
	if kept, err = keepAside(to, now); err != nil {
		return "", err
	}
	if err := place(staged, to, true); err != nil {
		return "", err
	}
	return filepath.Base(kept), nil
}

// seize takes the old file for itself, all of its log copied into it. A file that
// is damaged is left as it is: only its locks say that nobody has it open.
func seize(ctx context.Context, path string) (release func() error, err error) {
	s, err := openSession(ctx, path, readOnly)
	if err == nil {
		var n int
		err = errors.Join(openError(s.one(`SELECT count(*) FROM sqlite_schema`, &n)), s.close())
	}
	if errors.Is(err, ErrNotDatabase) || isFatal(err) {
		return func() error { return nil }, nil
	}
	if s, err = openSession(ctx, path, live); err != nil {
		return nil, err
	}
	var mode string
	if err = s.one(`PRAGMA journal_mode = DELETE`, &mode); err == nil {
		err = s.exec(`BEGIN EXCLUSIVE`)
	}
	if err == nil {
		return s.close, nil
	}
	if isBusy(err) {
		err = errors.Join(ErrInUse, err)
	}
	return nil, errors.Join(openError(err), s.close())
}

// keepAside gives the old file a second name, and takes what a damaged one still
// has beside it out of the way: a log must never be read into another database.
func keepAside(path string, now time.Time) (kept string, err error) {
	kept = path + ".replaced-" + now.UTC().Format("20060102T150405.000Z")
	if err := os.Link(path, kept); err != nil {
		return "", pathError(withoutPath(err))
	}
	for _, suffix := range []string{"-wal", "-shm", "-journal"} {
		if err := os.Rename(path+suffix, kept+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", pathError(withoutPath(err))
		}
	}
	return kept, nil
}

// InUseError is an ErrInUse that knows who.
type InUseError struct{ PID int } // 0 or less: not known, as from within a container

// Error names the process.
func (e *InUseError) Error() string {
	if e.PID <= 0 {
		return ErrInUse.Error()
	}
	return fmt.Sprintf("%v (process %d)", ErrInUse, e.PID)
}

// Unwrap is ErrInUse.
func (e *InUseError) Unwrap() error { return ErrInUse }

// The bytes that SQLite locks: of the database while anybody has it open, and of
// the index of its log.
const (
	pendingByte = 0x40000000
	lockBytes   = 512
	indexByte   = 120
	indexBytes  = 9
)

// inUse is ErrInUse when another process has locks on the file or on the index of
// its log. Nobody may have it open in this process: looking drops SQLite's locks.
func inUse(path string) error {
	for _, part := range []struct {
		suffix    string
		from, len int64
	}{{"", pendingByte, lockBytes}, {"-shm", indexByte, indexBytes}} {
		if err := unlocked(path+part.suffix, part.from, part.len); err != nil {
			return err
		}
	}
	return nil
}

func unlocked(path string, from, length int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return pathError(err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: from, Len: length}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return fmt.Errorf("look at locks: %w", err)
	}
	if lock.Type == unix.F_UNLCK {
		return nil
	}
	return &InUseError{PID: int(lock.Pid)}
}
