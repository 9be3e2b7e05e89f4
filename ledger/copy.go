package ledger

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"

	"github.com/outboxd/outboxd/chaos/point"
)

// Copied is what a Backup or a Restore made.
type Copied struct {
	Bytes         int64
	SchemaVersion int64
	Lineage       string
	Generation    int64
	LastToken     int64
	Operations    int64
	Foreign       int // tables and views of the application
	Took          time.Duration
}

// CopyOptions of Backup and Restore.
type CopyOptions struct {
	Foreign bool       // also a file that holds the application's own tables
	Replace bool       // Backup: put it in the place of an older backup
	Armed   point.Plan // Restore: where it breaks; only where it replaces a database that was created for it
}

// Backup copies the whole file to the path to, while it is in use: everything that
// was committed before it began is in the copy. The copy is checked and synced
// before it gets its name; it has mode 0600, is in WAL mode and can be opened as it
// is. It reads one snapshot all that time, so that the log grows.
func (l *Ledger) Backup(ctx context.Context, to string, o CopyOptions) (c Copied, err error) {
	if err := l.backupTarget(to, o.Replace); err != nil {
		return c, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), ".outboxd-backup-") // 0700: nobody sees what is made in it
	if err != nil {
		return c, targetError(err)
	}
	defer func() { err = errors.Join(err, targetError(os.RemoveAll(dir))) }()
	staged := filepath.Join(dir, "copy")
	if c, err = copyFile(ctx, l.file.path, live, staged, o.Foreign); err != nil {
		return c, err
	}
	if err := l.Check(); err != nil {
		return c, err
	}
	return c, place(staged, to, o.Replace)
}

// backupTarget refuses what must not be replaced: anything, unless that is asked
// for, and then anything but a SQLite database that is not this one.
func (l *Ledger) backupTarget(to string, replace bool) error {
	st, err := os.Lstat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return targetError(err)
	case !replace:
		return ErrExists
	case !st.Mode().IsRegular():
		return ErrTarget
	}
	for _, own := range []string{l.file.path, l.file.path + "-wal", l.file.path + "-shm", l.file.path + ".lock"} {
		if known, err := os.Lstat(own); err == nil && os.SameFile(known, st) {
			return ErrTarget
		}
	}
	for _, suffix := range []string{"-wal", "-journal"} {
		if _, err := os.Lstat(to + suffix); err == nil {
			return ErrTarget // a database that is in use, or was not closed
		}
	}
	return isDatabase(to)
}

// isDatabase looks at the first bytes of a file that nobody has open here.
func isDatabase(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return targetError(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	head := make([]byte, 16)
	if _, err := f.ReadAt(head, 0); err != nil || string(head) != "SQLite format 3\x00" {
		return ErrTarget
	}
	return nil
}

func targetError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: %w", ErrDiskFull, withoutPath(err))
	}
	return fmt.Errorf("%w: %w", ErrTarget, withoutPath(err))
}

func withoutPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return l.Err
	}
	return err
}

// How the source of a copy is opened.
const (
	live     = "mode=rw"             // as everybody else does
	readOnly = "mode=ro"             // it may be where nothing can be written
	frozen   = "mode=ro&immutable=1" // nobody writes it, and it has no log
)

// copyFile makes a checked copy of a database in WAL mode, not yet synced.
func copyFile(ctx context.Context, from, how, to string, foreign bool) (c Copied, err error) {
	began := time.Now()
	if err := vacuumInto(ctx, from, how, to, foreign); err != nil {
		return c, fmt.Errorf("copy database: %w", err)
	}
	if err := os.Chmod(to, 0o600); err != nil {
		return c, targetError(err)
	}
	if c, err = finishCopy(ctx, to); err != nil {
		return c, fmt.Errorf("check the copy: %w", err)
	}
	c.Took = time.Since(began)
	return c, nil
}

// session is a connection whose statements a context interrupts.
type session struct {
	ctx context.Context
	c   driver.Conn
}

func openSession(ctx context.Context, path, how string) (*session, error) {
	sqlite.StrictPragmas(true)
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: how + "&_busy_timeout=5000&_defensive=1&_error_rc=1"}
	connector, err := sqlite.NewConnector(u.String())
	if err != nil {
		return nil, fmt.Errorf("read connection settings: %w", err)
	}
	c, err := connector.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", openError(err))
	}
	return &session{ctx, c}, nil
}

func (s *session) exec(query string, args ...driver.NamedValue) error {
	_, err := s.c.(driver.ExecerContext).ExecContext(s.ctx, query, args)
	return err
}

// one is the first row.
func (s *session) one(query string, dest ...any) (err error) {
	rows, err := s.c.(driver.QueryerContext).QueryContext(s.ctx, query, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	row := Row{vals: make([]driver.Value, len(rows.Columns()))}
	if err := rows.Next(row.vals); err != nil {
		return err
	}
	return row.Scan(dest...)
}

func (s *session) close() error { return s.c.Close() }

// foreignSQL counts what is not ours.
const foreignSQL = `SELECT count(*) FROM sqlite_schema WHERE (type = 'table' OR type = 'view')
	AND name NOT LIKE 'outbox\_%' ESCAPE '\' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`

func vacuumInto(ctx context.Context, from, how, to string, foreign bool) (err error) {
	s, err := openSession(ctx, from, how)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var ours, others int
	if err := s.one(`SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'outbox_meta'`, &ours); err != nil {
		return openError(err)
	}
	if err := s.one(foreignSQL, &others); err != nil {
		return openError(err)
	}
	switch {
	case ours == 0:
		return ErrNoSchema
	case others > 0 && !foreign:
		return ErrForeign
	}
	if err := s.exec(`VACUUM INTO ?`, driver.NamedValue{Ordinal: 1, Value: to}); err != nil {
		return errors.Join(ctx.Err(), openError(err))
	}
	return nil
}

// finishCopy checks a copy, puts it into WAL mode and closes it, so that it is one
// file.
func finishCopy(ctx context.Context, path string) (c Copied, err error) {
	s, err := openSession(ctx, path, live)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var verdict, mode string
	if err := s.one(`PRAGMA integrity_check(1)`, &verdict); err != nil {
		return c, openError(err)
	}
	if verdict != "ok" {
		return c, ErrNotDatabase
	}
	err = s.one(`SELECT schema_version, lineage, generation, last_token, (SELECT count(*) FROM outbox_operation)
		FROM outbox_meta WHERE id = 1`, &c.SchemaVersion, &c.Lineage, &c.Generation, &c.LastToken, &c.Operations)
	if err != nil {
		return c, fmt.Errorf("%w: outbox_meta cannot be read: %w", ErrNotDatabase, err)
	}
	if c.SchemaVersion > SchemaVersion {
		return c, ErrNewer
	}
	if err := s.one(foreignSQL, &c.Foreign); err != nil {
		return c, openError(err)
	}
	if err := s.one(`PRAGMA journal_mode = WAL`, &mode); err != nil {
		return c, openError(err)
	}
	if mode != "wal" {
		return c, ErrNotWAL
	}
	st, err := os.Stat(path)
	if err != nil {
		return c, targetError(err)
	}
	c.Bytes = st.Size()
	return c, nil
}

// place syncs a file and gives it its name, durably.
func place(staged, to string, replace bool) error {
	if err := syncPath(staged); err != nil {
		return err
	}
	err := unix.Renameat2(unix.AT_FDCWD, staged, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	switch {
	case err == nil:
	case errors.Is(err, unix.EEXIST) && !replace:
		return ErrExists
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		err = os.Rename(staged, to) // replaces, or a file system without the flag, where the look at the beginning counts
	}
	if err != nil {
		return targetError(err)
	}
	return syncPath(filepath.Dir(to))
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return targetError(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return targetError(err)
	}
	return nil
}
