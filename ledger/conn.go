package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"modernc.org/sqlite"
)

// background: what writes ends when SQLite ends it. A context that can be
// cancelled would roll back the whole transaction with it.
var background = context.Background()

// conn is one connection of the driver with the statements that it has seen,
// each prepared once. It is used by one goroutine at a time.
type conn struct {
	raw      driver.Conn
	stmts    map[string]driver.Stmt
	controls map[control]driver.Stmt
	ctx      context.Context     // interrupts a reader's statements; of a writer, background
	args     []driver.NamedValue // scratch
	closure  bool                // the statements are a closure's, not the committer's
	effect   bool                // the statement is an effect's
	effects  map[string]driver.Stmt
}

// control is a statement that begins or ends a transaction. It is kept apart
// from the others, so that a closure does not get at it.
type control string

const (
	read       control = `BEGIN`
	begin      control = `BEGIN IMMEDIATE`
	commit     control = `COMMIT`
	rollback   control = `ROLLBACK`
	savepoint  control = `SAVEPOINT closure`
	release    control = `RELEASE closure`
	rollbackTo control = `ROLLBACK TO closure`
)

// role is what a connection is for.
type role int

const (
	writing role = iota
	reading
	checkpointing
)

// dsn never names a journal mode: naming one converts an application's file. It
// never creates a file either: one that is missing has been taken away.
func dsn(path string, r role) string {
	q := "mode=rw&_synchronous=FULL&_foreign_keys=1&_dqs=0&_defensive=1&_error_rc=1&psow=0" +
		"&_pragma=wal_autocheckpoint(0)&_pragma=temp_store(2)"
	switch r {
	case writing, checkpointing:
		q += "&_txlock=immediate&_busy_timeout=0"
	case reading:
		q += "&_txlock=deferred&_busy_timeout=5000&_query_only=1&_pragma=cache_size(-1000)"
	}
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q}
	return u.String()
}

// authorize keeps a closure from ending the transaction that it shares with
// others, or leaving the file. SQLite asks when it prepares a statement.
func (c *conn) authorize(action sqlite.AuthorizerActionCode, first, name, _, _ string) sqlite.AuthorizerReturnCode {
	switch {
	case c.effect && !allowsEffect(action, first, name):
		return sqlite.AuthorizerDeny
	case !c.closure:
	case action == sqlite.AuthTransaction, action == sqlite.AuthAttach, action == sqlite.AuthDetach,
		action == sqlite.AuthSavepoint && strings.EqualFold(name, "closure"):
		return sqlite.AuthorizerDeny
	}
	return sqlite.AuthorizerOK
}

func connect(path string, r role) (*conn, error) {
	connector, err := sqlite.NewConnector(dsn(path, r))
	if err != nil {
		return nil, fmt.Errorf("read connection settings: %w", err)
	}
	raw, err := connector.Connect(background)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", openError(err))
	}
	c := &conn{raw: raw, ctx: background, stmts: map[string]driver.Stmt{}, controls: map[control]driver.Stmt{},
		effects: map[string]driver.Stmt{}}
	if err := errors.Join(c.raw.(sqlite.AuthorizerRegisterer).RegisterAuthorizer(c.authorize), c.verify(r)); err != nil {
		_ = c.close()
		return nil, err
	}
	return c, nil
}

// verify reads back what the DSN asked for: unknown keys pass silently.
func (c *conn) verify(r role) error {
	want := []struct {
		pragma string
		value  int64
	}{
		{"PRAGMA synchronous", 2},
		{"PRAGMA foreign_keys", 1},
		{"PRAGMA wal_autocheckpoint", 0},
		{"PRAGMA busy_timeout", map[role]int64{reading: 5000}[r]},
		{"PRAGMA query_only", map[role]int64{reading: 1}[r]},
	}
	for _, w := range want {
		var got int64
		if err := c.one(w.pragma).Scan(&got); err != nil {
			return fmt.Errorf("read back %s: %w", w.pragma, openError(err))
		}
		if got != w.value {
			return fmt.Errorf("read back %s: got %d, want %d", w.pragma, got, w.value)
		}
	}
	return nil
}

func (c *conn) close() error {
	for _, s := range c.stmts {
		_ = s.Close() // its connection is closed next, whatever it says
	}
	for _, s := range c.controls {
		_ = s.Close()
	}
	for _, s := range c.effects {
		_ = s.Close()
	}
	return c.raw.Close()
}

func prepared[Q ~string](c *conn, known map[Q]driver.Stmt, query Q) (driver.Stmt, error) {
	if s, ok := known[query]; ok {
		return s, nil
	}
	s, err := c.raw.(driver.ConnPrepareContext).PrepareContext(background, string(query))
	if err != nil {
		return nil, fmt.Errorf("prepare statement: %w", err)
	}
	known[query] = s
	return s, nil
}

func (c *conn) control(query control) error {
	s, err := prepared(c, c.controls, query)
	if err != nil {
		return err
	}
	_, err = s.(driver.StmtExecContext).ExecContext(background, nil)
	return err
}

func (c *conn) bind(args []any) ([]driver.NamedValue, error) {
	c.args = c.args[:0]
	for i, a := range args {
		name := ""
		if n, ok := a.(sql.NamedArg); ok {
			name, a = n.Name, n.Value
		}
		v, err := value(a)
		if err != nil {
			return nil, fmt.Errorf("bind argument %d: %w", i+1, err)
		}
		c.args = append(c.args, driver.NamedValue{Name: name, Ordinal: i + 1, Value: v})
	}
	return c.args, nil
}

func (c *conn) exec(query string, args ...any) (driver.Result, error) {
	s, err := prepared(c, c.stmts, query)
	if err != nil {
		return nil, err
	}
	bound, err := c.bind(args)
	if err != nil {
		return nil, err
	}
	return s.(driver.StmtExecContext).ExecContext(background, bound)
}

func (c *conn) each(fn func(*Row) error, query string, args ...any) (err error) {
	s, err := prepared(c, c.stmts, query)
	if err != nil {
		return err
	}
	bound, err := c.bind(args)
	if err != nil {
		return err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(c.ctx, bound)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	row := Row{vals: make([]driver.Value, len(rows.Columns()))}
	for {
		if err := rows.Next(row.vals); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := fn(&row); err != nil {
			return err
		}
	}
}

// errEnough ends each after the first row.
var errEnough = errors.New("enough")

func (c *conn) one(query string, args ...any) One {
	o := One{err: sql.ErrNoRows}
	err := c.each(func(r *Row) error {
		o.row, o.err = Row{vals: append([]driver.Value(nil), r.vals...)}, nil
		return errEnough
	}, query, args...)
	if err != nil && !errors.Is(err, errEnough) {
		o.err = err
	}
	return o
}

// deferred is an error when the transaction holds a violated deferred foreign
// key: COMMIT would refuse the whole batch for it.
func (c *conn) deferred() error {
	n, _, err := c.raw.(sqlite.DBStatus).Status(sqlite.DBStatusDeferredFKs, false)
	if err != nil {
		return fmt.Errorf("read deferred foreign keys: %w", err)
	}
	if n != 0 {
		return ErrForeignKey
	}
	return nil
}

// pagesWritten is how many pages this connection has written to the log.
func (c *conn) pagesWritten() int {
	n, _, err := c.raw.(sqlite.DBStatus).Status(sqlite.DBStatusCacheWrite, false)
	if err != nil {
		return 0 // refused only for an unknown counter
	}
	return n
}
