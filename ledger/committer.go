package ledger

import (
	"errors"
	"fmt"
	"time"
)

// The pace of the committer. The gap lets other processes in: without it their
// transactions starve behind back-to-back commits.
const (
	batchClosures = 512
	batchTime     = 20 * time.Millisecond
	streakTime    = 4 * time.Millisecond
	gapTime       = time.Millisecond
	retryTime     = time.Millisecond
	fullRetryTime = 250 * time.Millisecond
	closeTime     = 10 * time.Second
)

// committer is the one goroutine that writes. All its fields are its own.
type committer struct {
	l       *Ledger
	q       *queue
	c       *conn
	marker  int64 // outbox_meta.commits as this batch wrote it
	changes int64 // total_changes of the connection after the last batch
	frames  int   // pages written since the last checkpoint was asked for
	streak  time.Time
}

// run works until the queue is closed and empty, or the file is lost.
func (w *committer) run() {
	for w.next() {
		if !w.begin() {
			continue
		}
		w.gather()
	}
	w.q.refuse(w.l.Err(), false)
}

// next waits for work. It is false when there will be none.
func (w *committer) next() bool {
	if w.l.failed() {
		return false
	}
	if !w.q.empty() {
		w.pause()
		return true
	}
	w.streak = time.Time{}
	if w.q.closed() {
		return false
	}
	<-w.q.wake
	return true
}

// pause leaves the write lock free for a moment after a streak of commits.
func (w *committer) pause() {
	if w.streak.IsZero() {
		w.streak = time.Now()
	}
	if w.l.ckpt.wanted.Load() {
		w.l.ckpt.run() // nobody writes now, so it can catch up with the log
	}
	if time.Since(w.streak) > streakTime {
		time.Sleep(gapTime)
		w.streak = time.Now()
	}
}

// begin takes the write lock, however long it takes, as long as somebody waits
// for it. It is false when nobody does or the file is lost.
func (w *committer) begin() bool {
	var since time.Time
	defer func() { w.l.health.busy(time.Time{}) }()
	for {
		_, err := w.c.exec(`BEGIN IMMEDIATE`)
		switch {
		case err == nil:
			return true
		case isFull(err):
			w.l.health.full(true)
			w.q.refuse(ErrDiskFull, false)
			return false
		case !isBusy(err):
			w.l.fail(fmt.Errorf("begin: %w", openError(err)))
			return false
		}
		if since.IsZero() {
			since = time.Now()
			w.l.health.busy(since)
		}
		w.q.refuse(ErrBusy, true)
		if w.q.closed() && time.Since(since) > closeTime {
			w.q.refuse(ErrBusy, false)
		}
		if w.q.empty() {
			return false
		}
		time.Sleep(retryTime)
	}
}

// gather runs what waits, also what comes in meanwhile, and commits it.
func (w *committer) gather() {
	start := time.Now()
	var ran []*request
	for len(ran) < batchClosures && time.Since(start) < batchTime {
		r := w.q.pop()
		if r == nil {
			break
		}
		ran = append(ran, r)
		if !w.closure(r) {
			w.void(ran[:len(ran)-1], r)
			return
		}
	}
	w.commit(ran)
}

// closure runs one closure in a savepoint of its own. It is false when the
// transaction did not survive it.
func (w *committer) closure(r *request) (alive bool) {
	if _, err := w.c.exec(`SAVEPOINT closure`); err != nil {
		r.err = err
		return false
	}
	tx := &Tx{c: w.c, now: w.l.now(), epoch: w.l.epoch}
	r.err = call(r.fn, tx)
	if r.err == nil {
		r.err = tx.err // a failed statement counts, also when the closure ignored it
	}
	if r.err == nil {
		r.err = w.c.deferred()
	}
	tx.err = ErrClosed // the closure is over: a Tx that was kept is of no use
	if r.err != nil {
		if _, err := w.c.exec(`ROLLBACK TO closure`); err != nil {
			return false
		}
	}
	if _, err := w.c.exec(`RELEASE closure`); err != nil {
		r.err = errors.Join(ErrVoid, r.err)
		return false
	}
	return true
}

// call turns a panic of the closure into its error.
func call(fn func(*Tx) error, tx *Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("closure panicked: %v", p)
		}
	}()
	return fn(tx)
}

// void starts again after a closure destroyed the transaction: first the
// others, then the offender alone. Should one of the others do the same, each
// runs alone.
func (w *committer) void(others []*request, offender *request) {
	w.rollback()
	if len(others) > 0 {
		w.again(others)
	}
	w.alone([]*request{offender})
}

func (w *committer) again(rs []*request) {
	if !w.beginFor(rs) {
		return
	}
	for _, r := range rs {
		if !w.closure(r) {
			w.rollback()
			w.alone(rs)
			return
		}
	}
	w.commit(rs)
}

// alone runs each request in a transaction of its own.
func (w *committer) alone(rs []*request) {
	for i, r := range rs {
		if !w.beginFor(rs[i:]) {
			return
		}
		if w.closure(r) {
			w.commit(rs[i : i+1])
			continue
		}
		w.rollback()
		r.answer(w.closureError(r.err))
	}
}

// closureError is what the caller of a closure that ran alone is told.
func (w *committer) closureError(err error) error {
	if isFull(err) {
		w.l.health.full(true)
		return errors.Join(ErrDiskFull, err)
	}
	if isFatal(err) {
		w.l.fail(err)
		return errors.Join(ErrCommitUnknown, err)
	}
	return errors.Join(ErrVoid, err)
}

// beginFor takes the lock again for requests that are out of the queue. Where
// it cannot be had any more they are told so: nothing of theirs was kept.
func (w *committer) beginFor(rs []*request) bool {
	for {
		if w.l.failed() {
			answerAll(rs, w.l.Err())
			return false
		}
		_, err := w.c.exec(`BEGIN IMMEDIATE`)
		if err == nil {
			return true
		}
		if isFull(err) {
			answerAll(rs, errors.Join(ErrDiskFull, err))
			return false
		}
		if !isBusy(err) {
			w.l.fail(err)
			continue
		}
		time.Sleep(retryTime)
	}
}

func answerAll(rs []*request, err error) {
	for _, r := range rs {
		r.answer(err)
	}
}

// rollback leaves no transaction behind; that there is none is no error.
func (w *committer) rollback() { _, _ = w.c.exec(`ROLLBACK`) }
