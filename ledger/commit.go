package ledger

import (
	"errors"
	"fmt"
	"time"
)

// commit makes the batch durable and only then answers it.
func (w *committer) commit(ran []*request) {
	changed, err := w.mark()
	if err != nil {
		w.rollback() // COMMIT was not tried: that nothing was kept is certain
		answerAll(ran, w.closureError(err))
		return
	}
	start := time.Now()
	if err := w.commitStatement(); err != nil {
		w.uncommitted(ran, changed, err)
		return
	}
	if changed {
		w.l.opts.Observe(len(ran), time.Since(start))
		w.l.health.full(false)
		w.written()
	}
	if err := w.l.file.same(); err != nil {
		w.l.fail(err)
		answerAll(ran, err)
		return
	}
	for _, r := range ran {
		r.answer(r.err)
	}
}

// mark counts the batch in the file, so that it can be found after a COMMIT
// that failed. A batch that changed nothing is not counted and writes nothing.
func (w *committer) mark() (changed bool, err error) {
	var n int64
	if err := w.c.one(`SELECT total_changes()`).Scan(&n); err != nil {
		return false, err
	}
	if n == w.changes {
		return false, nil
	}
	err = w.c.one(`UPDATE outbox_meta SET commits = commits + 1, committed_by = ?
		WHERE id = 1 RETURNING commits`, w.l.epoch).Scan(&w.marker)
	w.changes = n + 1
	return true, err
}

// commitStatement repeats COMMIT while it is only a lock that it waits for.
func (w *committer) commitStatement() error {
	for {
		_, err := w.c.exec(`COMMIT`)
		if err == nil || !isBusy(err) {
			return err
		}
		time.Sleep(retryTime)
	}
}

// uncommitted decides what an error at the end of a batch means.
func (w *committer) uncommitted(ran []*request, changed bool, err error) {
	switch {
	case !changed:
		w.rollback()
		answerAll(ran, w.closureError(err))
	case isConstraint(err):
		w.rollback()
		if len(ran) == 1 {
			ran[0].answer(errors.Join(ErrVoid, err))
			return
		}
		w.alone(ran)
	case isFull(err):
		w.limbo(ran)
	default:
		w.l.fail(fmt.Errorf("%w: %w", ErrCommitUnknown, err))
		answerAll(ran, w.l.Err())
	}
}

// limbo is where a batch is after COMMIT said that the disk is full: its frames
// may be in the log all the same. The writer is opened anew, the batch looked
// for, and one real commit made, which either makes it durable or overwrites
// what is left of it. Only then is anybody answered.
func (w *committer) limbo(ran []*request) {
	w.l.health.full(true)
	f := undecided
	for {
		err := w.readBack(&f)
		switch {
		case err == nil:
			w.l.health.full(false)
			resolve(ran, f)
			return
		case !isFull(err) && !isBusy(err):
			w.l.fail(fmt.Errorf("%w: %w", ErrCommitUnknown, err))
			answerAll(ran, w.l.Err())
			return
		}
		w.q.refuse(ErrDiskFull, false)
		ran = giveUp(ran)
		if w.q.closed() {
			answerAll(ran, ErrCommitUnknown)
			return
		}
		select {
		case <-w.q.wake:
		case <-time.After(fullRetryTime):
		}
	}
}

// fate is what became of a batch whose COMMIT failed.
type fate int

const (
	lost fate = iota
	committed
	undecided // another process committed since: its count hides ours
)

func resolve(ran []*request, f fate) {
	for _, r := range ran {
		switch f {
		case committed:
			r.answer(r.err)
		case lost:
			r.answer(ErrDiskFull)
		default:
			r.answer(ErrCommitUnknown)
		}
	}
}

// giveUp answers those whose caller waits no longer: they are told that it is
// unknown, not that it failed.
func giveUp(ran []*request) []*request {
	kept := ran[:0]
	for _, r := range ran {
		if r.ctx.Err() != nil {
			r.answer(errors.Join(ErrCommitUnknown, r.ctx.Err()))
			continue
		}
		kept = append(kept, r)
	}
	return kept
}

// readBack looks for the batch through a new connection and makes one real
// commit. Its own count is never the one that the batch would have written, so
// that a second look cannot take the one for the other.
func (w *committer) readBack(f *fate) error {
	if w.c != nil {
		_ = w.c.close() // it is of no use; what it says changes nothing
	}
	c, err := connect(w.l.file.path, writing)
	w.c, w.changes, w.frames = c, 0, 0
	if err != nil {
		return err
	}
	if _, err := c.exec(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	var commits, by int64
	if err := c.one(`SELECT commits, committed_by FROM outbox_meta WHERE id = 1`).Scan(&commits, &by); err != nil {
		return err
	}
	switch {
	case commits == w.marker && by == w.l.epoch:
		*f = committed
	case commits < w.marker, commits == w.marker:
		*f = lost
	}
	if _, err := c.exec(`UPDATE outbox_meta SET commits = MAX(commits, ?) + 1, committed_by = ? WHERE id = 1`,
		w.marker, w.l.epoch); err != nil {
		return err
	}
	_, err = c.exec(`COMMIT`)
	return err
}

// written asks for a checkpoint when enough pages have gone to the log.
func (w *committer) written() {
	if n := w.c.pagesWritten(); n-w.frames >= checkpointPages || n < w.frames {
		w.frames = n
		w.l.ckpt.signal()
	}
	w.l.ckpt.dirty.Store(true)
}
