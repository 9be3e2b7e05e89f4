package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// patience is how long an effect may take in a batch that it shares. One that
// takes longer is begun again in a batch of its own, with the whole of its limit.
const patience = 100 * time.Millisecond

// ErrOverTime says that an effect ran into its time limit. Nothing of it was kept.
var ErrOverTime = errors.New("effect ended at its time limit")

// errHurried: the limit was that of a shared batch.
var errHurried = errors.New("effect needs a batch of its own")

// Effect is what somebody else's statements see of a transaction: an effect in
// this file, beside the outbox's own work. It may read everything and write every
// table but the outbox's, of which outbox_intake is open, also through triggers.
// It cannot end the transaction, change the schema or leave the file. After the
// first statement that fails, every later one answers with the same error.
type Effect struct {
	tx   *Tx
	ctx  context.Context
	over bool // the limit ended a statement
}

// Effect runs fn for somebody else's statements. It keeps all or nothing of what
// fn does, as Try does. They end at the limit with ErrOverTime; a function that
// runs no statement is not ended. Where a statement destroyed the transaction
// (INSERT OR ROLLBACK, the limit, a full disk) the error is also ErrVoid.
func (tx *Tx) Effect(limit time.Duration, fn func(*Effect) error) error {
	hurried := !tx.alone && limit > patience
	if hurried {
		limit = patience
	}
	ctx, cancel := context.WithTimeout(background, limit)
	defer cancel()
	e := &Effect{tx: tx, ctx: ctx}
	err := tx.Try(func() error { return fn(e) })
	if err == nil || !e.over {
		return err
	}
	if hurried {
		return tx.fail(errors.Join(ErrVoid, errHurried))
	}
	return errors.Join(ErrOverTime, err)
}

// Now is the time of the transaction, in UTC.
func (e *Effect) Now() time.Time { return e.tx.now }

// Exec runs a statement and returns how many rows it changed. An argument that is
// a sql.NamedArg is bound by its name.
func (e *Effect) Exec(query string, args ...any) (int64, error) {
	var n int64
	err := e.run(query, args, func(s driver.Stmt, bound []driver.NamedValue) error {
		r, err := s.(driver.StmtExecContext).ExecContext(e.ctx, bound)
		if err != nil {
			return err
		}
		n, err = r.RowsAffected()
		return err
	})
	return n, err
}

// Query runs a statement and calls fn for every row, with the names of the columns
// and their values: int64, float64, string, []byte or nil, valid only within fn.
func (e *Effect) Query(fn func(columns []string, values []driver.Value) error, query string, args ...any) error {
	return e.run(query, args, func(s driver.Stmt, bound []driver.NamedValue) (err error) {
		rows, err := s.(driver.StmtQueryContext).QueryContext(e.ctx, bound)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		columns := rows.Columns()
		values := make([]driver.Value, len(columns))
		for {
			if err := rows.Next(values); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := fn(columns, values); err != nil {
				return err
			}
		}
	})
}

// Each implements Querier.
func (e *Effect) Each(fn func(*Row) error, query string, args ...any) error {
	return e.Query(func(_ []string, values []driver.Value) error { return fn(&Row{values}) }, query, args...)
}

// One implements Querier.
func (e *Effect) One(query string, args ...any) One {
	o := One{err: sql.ErrNoRows}
	err := e.Query(func(_ []string, values []driver.Value) error {
		if o.err != nil {
			o.row, o.err = Row{append([]driver.Value(nil), values...)}, nil
		}
		return nil
	}, query, args...)
	if err != nil {
		o.err = err
	}
	return o
}

// run prepares and runs a statement under the rules for effects.
func (e *Effect) run(query string, args []any, do func(driver.Stmt, []driver.NamedValue) error) error {
	if e.tx.err != nil {
		return e.tx.err
	}
	c := e.tx.c
	c.effect = true
	defer func() { c.effect = false }()
	s, err := c.preparedEffect(query)
	if err != nil {
		return e.tx.fail(err)
	}
	bound, err := c.bind(args)
	if err != nil {
		return e.tx.fail(err)
	}
	if err := do(s, bound); err != nil {
		e.over = e.over || errors.Is(err, context.DeadlineExceeded)
		return e.tx.fail(fmt.Errorf("run statement: %w", err))
	}
	return nil
}

// mostEffects is how many statements of effects are kept prepared.
const mostEffects = 256

// preparedEffect keeps statements of effects apart: they were prepared, and
// allowed, under other rules.
func (c *conn) preparedEffect(query string) (driver.Stmt, error) {
	if len(c.effects) >= mostEffects {
		for _, s := range c.effects {
			_ = s.Close() // nothing of it runs
		}
		clear(c.effects)
	}
	return prepared(c, c.effects, query)
}

// intakeTable is the one of ours that an effect may write.
const intakeTable = "outbox_intake"

// allowsEffect is asked for every part of a statement, and of the triggers that it
// fires, when it is prepared.
func allowsEffect(action sqlite.AuthorizerActionCode, first, second string) bool {
	switch action {
	case sqlite.AuthSelect, sqlite.AuthRead, sqlite.AuthRecursive:
		return true
	case sqlite.AuthFunction:
		return !strings.EqualFold(second, "load_extension")
	case sqlite.AuthInsert, sqlite.AuthUpdate, sqlite.AuthDelete:
		table := strings.ToLower(first)
		ours := strings.HasPrefix(table, "outbox_") && table != intakeTable
		return !ours && !strings.HasPrefix(table, "sqlite_")
	}
	return false
}

// Failure is why the database did not take a statement of an effect.
type Failure struct {
	Code       string // sqlite_ and the extended result code, or foreign_key, forbidden
	Constraint bool   // the data is refused: the same statement would be again
	Reason     string // in the database's own words
}

// Error is the reason.
func (f *Failure) Error() string { return f.Reason }

// FailureOf is what the database said about a statement of an effect; false for an
// error of another kind.
func FailureOf(err error) (*Failure, bool) {
	if errors.Is(err, ErrForeignKey) {
		return &Failure{"foreign_key", true, "FOREIGN KEY constraint failed"}, true
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return nil, false
	}
	f := &Failure{Code: fmt.Sprintf("sqlite_%d", e.Code()), Constraint: isConstraint(err), Reason: e.Error()}
	if e.Code()&0xff == sqlite3.SQLITE_AUTH {
		f.Code = "forbidden"
	}
	return f, true
}
