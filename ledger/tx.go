package ledger

import (
	"errors"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outboxd/outboxd/chaos/point"
	"github.com/outboxd/outboxd/fencing"
)

// Querier is what a Tx and a View have in common. The function given to Each
// must not run another statement: collect first, act afterwards.
type Querier interface {
	// Each calls fn for every row.
	Each(fn func(*Row) error, query string, args ...any) error
	// One is the first row, or sql.ErrNoRows.
	One(query string, args ...any) One
}

// Tx is the transaction that a closure of Write runs in. It carries no context:
// a statement that is cancelled destroys the work of every closure beside it.
// After the first statement that fails, every later one answers with the same
// error, since SQLite may have ended the transaction under it.
type Tx struct {
	c     *conn
	now   time.Time
	epoch int64
	kinds point.Set
	alone bool // in its batch
	given *reservation
	last  int64 // token that was issued in it
	ended []int64
	err   error
}

// For says what the transaction is about, for the crash points of its commit.
func (tx *Tx) For(k point.Kind) { tx.kinds.Add(k) }

// Now is the time of the transaction, read once, in UTC.
func (tx *Tx) Now() time.Time { return tx.now }

// Epoch is the boot epoch of this process: the owner of what it claims.
func (tx *Tx) Epoch() int64 { return tx.epoch }

// Ended notes that an entry has come to an end. What follows from that is done in
// the same transaction, by Options.Ended, once the closure has done its part.
func (tx *Tx) Ended(operation int64) { tx.ended = append(tx.ended, operation) }

// Exec runs a statement and returns how many rows it changed.
func (tx *Tx) Exec(query string, args ...any) (int64, error) {
	if tx.err != nil {
		return 0, tx.err
	}
	r, err := tx.c.exec(query, args...)
	if err != nil {
		return 0, tx.fail(err)
	}
	return r.RowsAffected()
}

// Insert runs an INSERT and returns the new row's id; inserted is false when
// ON CONFLICT DO NOTHING left the table as it was.
func (tx *Tx) Insert(query string, args ...any) (id int64, inserted bool, err error) {
	if tx.err != nil {
		return 0, false, tx.err
	}
	r, err := tx.c.exec(query, args...)
	if err != nil {
		return 0, false, tx.fail(err)
	}
	n, err := r.RowsAffected()
	if err != nil || n == 0 {
		return 0, false, err
	}
	id, err = r.LastInsertId()
	return id, true, err
}

// Each implements Querier.
func (tx *Tx) Each(fn func(*Row) error, query string, args ...any) error {
	if tx.err != nil {
		return tx.err
	}
	if err := tx.c.each(fn, query, args...); err != nil {
		if sqliteCode(err) != 0 {
			return tx.fail(err)
		}
		return err
	}
	return nil
}

// One implements Querier.
func (tx *Tx) One(query string, args ...any) One {
	if tx.err != nil {
		return One{err: tx.err}
	}
	o := tx.c.one(query, args...)
	if o.err != nil && sqliteCode(o.err) != 0 {
		o.err = tx.fail(o.err)
	}
	return o
}

// Tokens issues n fencing tokens, the first of a row of n: all higher than
// every one that this file ever gave out.
func (tx *Tx) Tokens(n int) (first int64, err error) {
	var last int64
	var lineage string
	if err := tx.One(`SELECT last_token, lineage FROM outbox_meta WHERE id = 1`).Scan(&last, &lineage); err != nil {
		return 0, fmt.Errorf("read last token: %w", err)
	}
	if first, err = fencing.Next(last, 0, tx.now); err != nil {
		return 0, err
	}
	last = first + int64(n) - 1
	if err := tx.given.reach(lineage, last); err != nil {
		return 0, err
	}
	if _, err = tx.Exec(`UPDATE outbox_meta SET last_token = ? WHERE id = 1`, last); err == nil {
		tx.last = last
	}
	return first, err
}

// The savepoint of Try. The innermost one of a name is the one that is meant.
const (
	tryBegin control = `SAVEPOINT try`
	tryEnd   control = `RELEASE try`
	tryUndo  control = `ROLLBACK TO try`
)

// Try keeps all of what fn does or, when it returns an error, a statement of it
// failed or a deferred foreign key is left violated, nothing of it: then the
// transaction goes on as if fn had not run, and Try returns the error. Where the
// transaction did not survive, or must not go on (the disk is full or broken),
// the error is also ErrVoid, and every later statement answers with it.
func (tx *Tx) Try(fn func() error) error {
	if tx.err != nil {
		return tx.err
	}
	if err := tx.c.control(tryBegin); err != nil {
		return tx.fail(errors.Join(ErrVoid, err))
	}
	last, ended := tx.last, len(tx.ended)
	err := fn()
	if err == nil {
		err = tx.err // a failed statement counts, also when fn ignored it
	}
	if err == nil {
		err = tx.c.deferred()
	}
	if isFull(err) || isFatal(err) || errors.Is(err, ErrVoid) {
		return tx.fail(errors.Join(ErrVoid, err))
	}
	if err != nil {
		if undo := tx.c.control(tryUndo); undo != nil {
			return tx.fail(errors.Join(ErrVoid, err))
		}
		tx.err, tx.last, tx.ended = nil, last, tx.ended[:ended]
	}
	if end := tx.c.control(tryEnd); end != nil {
		return tx.fail(errors.Join(ErrVoid, err, end))
	}
	return err
}

// ErrIgnored says that a trigger of the application made the file ignore a
// statement.
var ErrIgnored = errors.New("a trigger ignores the statement")

// Refusal says, in words without values, why the file does not take a statement
// for what it is about: another one may do better. It is "" for every other error.
func Refusal(err error) string {
	code := sqliteCode(err)
	switch {
	case errors.Is(err, ErrIgnored):
		return "a trigger ignores it"
	case errors.Is(err, ErrForeignKey):
		return "a foreign key is left violated"
	case code == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
		return "a trigger refuses it"
	}
	switch code & 0xff {
	case sqlite3.SQLITE_CONSTRAINT:
		return fmt.Sprintf("a constraint refuses it (SQLite %d)", code)
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_AUTH:
		return fmt.Sprintf("it, or a trigger of it, cannot run (SQLite %d)", code)
	}
	return ""
}

func (tx *Tx) fail(err error) error {
	tx.err = err
	return err
}
