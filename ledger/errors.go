package ledger

import (
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// What a caller may branch on. Each has a stable code in Code.
var (
	// ErrBusy: another process held the write lock for longer than the caller waited.
	ErrBusy = errors.New("database busy: another process holds its write lock")
	// ErrDiskFull: the disk does not take the write; nothing of it was kept.
	ErrDiskFull = errors.New("disk full: nothing was written")
	// ErrCommitUnknown: COMMIT failed and the process must end; the next start
	// finds out whether it took place. Nobody may be answered.
	ErrCommitUnknown = errors.New("commit failed with an input/output error: whether it took place is unknown")
	// ErrReplaced: the path no longer names the file that is open.
	ErrReplaced = errors.New("the database file was moved, removed or replaced while it was open")
	// ErrNotWAL: an existing file is not in WAL mode, which is never changed behind its owner's back.
	ErrNotWAL = errors.New("database is not in WAL mode: run `PRAGMA journal_mode=WAL` on it once, with no other connection open")
	// ErrNewer: the file was written by a newer outboxd.
	ErrNewer = errors.New("database has a newer schema than this program: upgrade outboxd")
	// ErrOlder: the file has an older schema and was not opened to be migrated.
	ErrOlder = errors.New("database has an older schema than this program: the next start of the daemon, or `outboxd db migrate`, brings it up to date")
	// ErrNotFound: there is no such file and it was not to be created.
	ErrNotFound = errors.New("no such database file")
	// ErrReadOnly: the file or its directory cannot be written by this user.
	ErrReadOnly = errors.New("database, or the directory that holds it, cannot be written by this user: SQLite needs that even to look, unless a daemon is asked through its socket")
	// ErrNetworkFS: the file lies on a network file system, where WAL is not safe.
	ErrNetworkFS = errors.New("database lies on a network file system, where its locks and shared memory are not safe")
	// ErrNotDatabase: the file is not a SQLite database, or is damaged.
	ErrNotDatabase = errors.New("file is not a SQLite database, or is damaged")
	// ErrNoSchema: the file has no outbox tables and was opened for reading.
	ErrNoSchema = errors.New("database has no outbox tables: the first start of the daemon (`outboxd run`), or the first `outboxd submit`, makes them")
	// ErrForeign: the file holds the application's own tables, and that was not said to be known.
	ErrForeign = errors.New("database holds the application's own tables, which are copied and put back with it: say --foreign-tables if that is meant")
	// ErrExists: there is a file where a backup was to be.
	ErrExists = errors.New("there is a file of that name already: name another one, or say --replace")
	// ErrTarget: a backup cannot be written where it was to be.
	ErrTarget = errors.New("backup cannot be written there: its directory must exist and be writable by the user that does it (beside a daemon, the daemon's), and only an earlier backup is ever replaced")
	// ErrInUse: the file to be restored is open in another process.
	ErrInUse = errors.New("database is open in another process: stop the daemon and every application that uses the file")
	// ErrLeftover: the file to be restored is missing, but not what belongs to it.
	ErrLeftover = errors.New("the database file is missing, but its -wal, -shm or -journal is there: move that away first, it may hold commits")
	// ErrClosed: the ledger is closed or closing.
	ErrClosed = errors.New("ledger is closed")
	// ErrForeignKey: a closure ended with a deferred foreign key violated.
	ErrForeignKey = errors.New("closure left a deferred foreign key violated")
	// ErrHeld: the file is older than what was done with it: see Standing.
	ErrHeld = errors.New("the database was put back from an older copy: it accepts, but nothing is sent, asked or reviewed until an operator says `outboxd db release`")
	// ErrNotForChaos: a process that is to break was pointed at a file that others may need.
	ErrNotForChaos = errors.New("this database was not created for chaos: make a new one with `outboxd run --chaos-create`")
	// ErrVoid: the closure destroyed the transaction that it ran in.
	ErrVoid = errors.New("closure ended the transaction it ran in")
)

var codes = []struct {
	err  error
	code string
}{
	{ErrBusy, "DATABASE_BUSY"},
	{ErrDiskFull, "DISK_FULL"},
	{ErrCommitUnknown, "COMMIT_UNKNOWN"},
	{ErrReplaced, "DATABASE_REPLACED"},
	{ErrNotWAL, "NOT_WAL"},
	{ErrNewer, "SCHEMA_NEWER"},
	{ErrOlder, "SCHEMA_OLDER"},
	{ErrNotFound, "DATABASE_NOT_FOUND"},
	{ErrReadOnly, "DATABASE_READ_ONLY"},
	{ErrNetworkFS, "NETWORK_FILE_SYSTEM"},
	{ErrNotDatabase, "NOT_A_DATABASE"},
	{ErrNoSchema, "STORE_CONTRACT_ERROR"},
	{ErrForeign, "FOREIGN_TABLES"},
	{ErrExists, "TARGET_EXISTS"},
	{ErrTarget, "TARGET_UNUSABLE"},
	{ErrInUse, "DATABASE_IN_USE"},
	{ErrLeftover, "DATABASE_NOT_FOUND"},
	{ErrHeld, "HELD"},
	{ErrNotForChaos, "NOT_FOR_CHAOS"},
	{ErrClosed, "CLOSED"},
}

// Code is the stable code of an error of this package, SQLITE_ERROR for any
// other error of the database, and "" for everything else.
func Code(err error) string {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	if _, ok := errors.AsType[*WrongUserError](err); ok {
		return "WRONG_USER"
	}
	if sqliteCode(err) != 0 {
		return "SQLITE_ERROR"
	}
	return ""
}

// Hint is the sentence of the sentinel behind err: it names the cause and what
// to do, and holds no path. It is "" for other errors.
func Hint(err error) string {
	if used, ok := errors.AsType[*InUseError](err); ok {
		return used.Error()
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.err.Error()
		}
	}
	if wrong, ok := errors.AsType[*WrongUserError](err); ok {
		return wrong.Error()
	}
	return ""
}

// Broken reports whether err comes from an input/output error of the disk: what
// was written last may not have reached it, so the next start must copy the log
// completely before it answers (Options.Complete).
func Broken(err error) bool {
	return errors.Is(err, ErrCommitUnknown) || sqliteCode(err)&0xff == sqlite3.SQLITE_IOERR && !isFull(err)
}

func sqliteCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// isBusy: somebody else holds the lock, or won the race for one; nothing was
// done.
func isBusy(err error) bool {
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return true
	}
	return false
}

// isFull: the disk does not take it. Besides 13, a write refused by a size
// limit (778) and shared memory that cannot grow (4874) mean the same.
func isFull(err error) bool {
	switch sqliteCode(err) {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE:
		return true
	}
	return false
}

// isFatal: the file cannot be trusted through this connection any more.
func isFatal(err error) bool {
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return !isFull(err)
	}
	return false
}

// isConstraint: the statement, or COMMIT, was refused for a constraint.
func isConstraint(err error) bool {
	return sqliteCode(err)&0xff == sqlite3.SQLITE_CONSTRAINT
}

// openError turns what SQLite says at opening into what an operator can act on.
func openError(err error) error {
	if isBusy(err) {
		return errors.Join(ErrBusy, err)
	}
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return errors.Join(ErrReadOnly, err)
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
		return errors.Join(ErrNotDatabase, err)
	}
	if isFull(err) {
		return errors.Join(ErrDiskFull, err)
	}
	return err
}
