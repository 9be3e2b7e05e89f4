package ledger

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/outboxd/outboxd/chaos/point"
)

// The pace of the committer. The share lets other processes in: without it their
// transactions starve behind back-to-back commits.
const (
	batchClosures = 512
	batchTime     = 20 * time.Millisecond
	streakTime    = 4 * time.Millisecond
	freeShare     = 4                      // parts of time with the lock go with one without it
	lookTime      = 100 * time.Millisecond // how often SQLite's busy handler looks at the least
	retryTime     = time.Millisecond
	fullRetryTime = 250 * time.Millisecond
	closeTime     = 10 * time.Second
)

// committer is the one goroutine that writes. All its fields are its own.
type committer struct {
	l       *Ledger
	q       *queue
	c       *conn
	marker  int64         // outbox_meta.commits as this batch wrote it
	kinds   point.Set     // what the closures of this batch are about
	changes int64         // total_changes of the connection after the last batch
	frames  int           // pages written since the last checkpoint was asked for
	held    time.Duration // how long the lock was held since it was last left free
	freed   time.Time     // when it was given back last
	others  neighbours
	given   reservation
}

// run works until the queue is closed and empty, or the file is lost.
func (w *committer) run() {
	for w.next() {
		if w.begin() {
			taken := time.Now()
			w.gather()
			w.freed = time.Now()
			w.held += w.freed.Sub(taken)
		}
	}
	why := w.l.Err()
	if why == nil {
		why = ErrClosed
	}
	w.q.refuse(why, false)
}

// next waits for work. It is false when there will be none.
func (w *committer) next() bool {
	if w.l.ckpt.wanted.Load() {
		w.l.ckpt.run() // nobody writes now, so it can catch up with the log
	}
	for w.q.empty() {
		if w.q.over() {
			return false
		}
		<-w.q.wake
		w.l.pulse.Add(1)
	}
	w.l.pulse.Add(1)
	w.share()
	return !w.l.failed()
}

// share leaves the lock free for a fifth of the time. The others look for it every
// lookTime, so it is the share of time that counts, not the number of gaps: with a
// fifth, fifty looks in 5 s do not all miss. Moments without work count, so that
// who writes now and then never waits. One commit that a slow disk held up is paid
// back with one look, not with a fifth of it. Where nobody else has the file open
// there is nobody to share with.
func (w *committer) share() {
	gap := min(w.held/freeShare, lookTime) - time.Since(w.freed)
	if gap > 0 && w.held <= streakTime {
		return
	}
	if gap > 0 && !w.others.none() {
		time.Sleep(gap)
	}
	w.held = 0
}

// begin takes the write lock, however long it takes, as long as somebody waits
// for it. It is false when nobody does or the file is lost.
func (w *committer) begin() bool {
	var since time.Time
	defer func() { w.l.health.busy(time.Time{}) }()
	for {
		err := w.c.control(begin)
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
		w.l.pulse.Add(1)
		w.q.refuse(ErrBusy, true)
		if w.q.closed() && time.Since(since) > closeTime {
			w.q.refuse(ErrBusy, false)
		}
		if w.q.empty() || w.l.failed() {
			return false
		}
		time.Sleep(retryTime)
	}
}

// gather runs what waits, also what comes in meanwhile, and commits it.
func (w *committer) gather() {
	start := time.Now()
	yielded := false
	var ran []*request
	w.kinds, w.given.issued = 0, 0
	for len(ran) < batchClosures && time.Since(start) < batchTime {
		r := w.q.pop(len(ran))
		if r == nil && !yielded {
			yielded = true
			runtime.Gosched() // those who were just answered may have more
			continue
		}
		if r == nil {
			break
		}
		ran = append(ran, r)
		if !w.closure(r) {
			w.void(ran)
			return
		}
		if r.alone {
			break
		}
	}
	w.commit(ran)
}

// closure runs one closure in a savepoint of its own. It is false when the
// transaction did not survive it.
func (w *committer) closure(r *request) (alive bool) {
	if err := w.c.control(savepoint); err != nil {
		r.err = err
		return false
	}
	tx := &Tx{c: w.c, now: w.l.now(), epoch: w.l.epoch, alone: r.alone, given: &w.given}
	w.c.closure = true
	r.err = w.body(r.fn, tx)
	w.c.closure = false
	if r.err == nil {
		r.err = w.c.deferred()
	}
	tx.err = ErrClosed // the closure is over: a Tx that was kept is of no use
	if isFull(r.err) || isFatal(r.err) || errors.Is(r.err, errHurried) {
		return false // it may have survived, but this concerns more than the closure
	}
	if r.err != nil {
		if err := w.c.control(rollbackTo); err != nil {
			return false
		}
	}
	if err := w.c.control(release); err != nil {
		r.err = errors.Join(ErrVoid, r.err)
		return false
	}
	if r.err == nil {
		w.kinds |= tx.kinds
		w.given.issued = max(w.given.issued, tx.last)
	}
	return true
}

// body is the closure, and what follows from the entries that it brought to an end.
func (w *committer) body(fn func(*Tx) error, tx *Tx) error {
	err := call(fn, tx)
	if err == nil {
		err = tx.err // a failed statement counts, also when the closure ignored it
	}
	if err != nil || len(tx.ended) == 0 {
		return err
	}
	if err := call(func(tx *Tx) error { return w.l.opts.Ended(tx, tx.ended) }, tx); err != nil {
		return fmt.Errorf("do what follows: %w", err)
	}
	return tx.err
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

// void takes back a batch whose transaction the last closure destroyed. The
// others run again, and that one after them, alone; so does whatever is lost for
// the second time. What ran alone is told that it was the one.
func (w *committer) void(ran []*request) {
	w.rollback()
	others, offender := ran[:len(ran)-1], ran[len(ran)-1]
	if len(others) == 0 && !errors.Is(offender.err, errHurried) {
		offender.answer(w.closureError(offender.err))
		return
	}
	for _, r := range others {
		r.alone, r.lost = r.lost, true
	}
	offender.alone, offender.lost = true, true
	w.q.putBack(ran)
}

// apart lets each request of a batch that was rolled back run alone.
func (w *committer) apart(ran []*request) {
	for _, r := range ran {
		r.alone, r.lost = true, true
	}
	w.q.putBack(ran)
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

// concludeAll answers everybody of a batch that was not kept, or may not have
// been.
func concludeAll(rs []*request, err error) {
	for _, r := range rs {
		r.conclude(err)
	}
}

// rollback leaves no transaction behind; that there is none is no error.
func (w *committer) rollback() { _ = w.c.control(rollback) }
