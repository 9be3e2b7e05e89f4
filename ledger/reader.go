package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/puddle/v2"
)

// View is one read snapshot. It ends with the function that it is given to.
type View struct {
	c   *conn
	ctx context.Context
}

// Each implements Querier. It stops at the next row once the context of Read
// has ended.
func (v *View) Each(fn func(*Row) error, query string, args ...any) error {
	return v.c.each(func(r *Row) error {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		return fn(r)
	}, query, args...)
}

// One implements Querier.
func (v *View) One(query string, args ...any) One { return v.c.one(query, args...) }

// Read runs fn on one snapshot of the file. It waits for a free reader until ctx
// ends, which also interrupts the statement that runs, as Close does.
func (l *Ledger) Read(ctx context.Context, fn func(*View) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.reading, func() { cancel(ErrClosed) })()
	res, err := l.readers.Acquire(ctx)
	if errors.Is(err, puddle.ErrClosedPool) || errors.Is(context.Cause(ctx), ErrClosed) {
		if err == nil {
			res.Release()
		}
		return ErrClosed
	}
	if err != nil {
		return errors.Join(l.file.same(), fmt.Errorf("wait for a reader: %w", openError(err)))
	}
	keep := false
	defer func() { // also when fn panics: its transaction must not leak to the next borrower
		if keep {
			res.Release()
			return
		}
		res.Destroy()
	}()
	if err := l.file.same(); err != nil {
		return err
	}
	err = view(ctx, res.Value(), fn)
	keep = !spoilt(err)
	if err != nil && errors.Is(context.Cause(ctx), ErrClosed) {
		return errors.Join(ErrClosed, err)
	}
	return err
}

func view(ctx context.Context, c *conn, fn func(*View) error) error {
	if err := c.control(read); err != nil {
		return openError(err)
	}
	c.ctx = ctx
	err := fn(&View{c: c, ctx: ctx})
	c.ctx = background
	if end := c.control(rollback); end != nil {
		return errors.Join(err, errUnended, end)
	}
	return err
}

// errUnended: the transaction of a reader could not be ended, and would leak to
// the next borrower.
var errUnended = errors.New("read transaction was not ended")

// spoilt: the connection must not be used again.
func spoilt(err error) bool {
	return errors.Is(err, errUnended) || isFatal(err)
}

func newReaders(path string, n int) (*puddle.Pool[*conn], error) {
	return puddle.NewPool(&puddle.Config[*conn]{
		Constructor: func(context.Context) (*conn, error) { return connect(path, reading) },
		Destructor:  func(c *conn) { _ = c.close() },
		MaxSize:     int32(n),
	})
}
