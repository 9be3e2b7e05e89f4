package ledger

import (
	"errors"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/chaos/point"
)

// commit makes the batch durable and only then answers it.
func (w *committer) commit(ran []*request) {
	changed, err := w.mark()
	if err != nil {
		w.rollback() // COMMIT was not tried: that nothing was kept is certain
		concludeAll(ran, w.closureError(err))
		return
	}
	if !changed {
		w.kinds = 0
	} else if len(ran) > 1 {
		w.kinds.Add(point.Batch)
	}
	start := time.Now()
	w.kinds.Before()
	if err := w.commitStatement(); err != nil {
		w.uncommitted(ran, changed, err)
		return
	}
	w.kinds.After()
	w.given.durable = max(w.given.durable, w.given.issued)
	if changed {
		w.l.opts.Observe(len(ran), time.Since(start))
		w.l.health.full(false)
		w.written()
	}
	if err := w.l.file.same(); err != nil {
		w.l.fail(err)
		for _, r := range ran {
			r.answer(err) // also a refusal was read from a file that nobody sees
		}
		return
	}
	for _, r := range ran {
		r.answer(r.err)
	}
}

// mark counts the batch in the file, so that it can be found after a COMMIT
// that failed. A batch that changed nothing is not counted and writes nothing,
// unless it is to show that the disk takes writes again.
func (w *committer) mark() (changed bool, err error) {
	var n int64
	if err := w.c.one(`SELECT total_changes()`).Scan(&n); err != nil {
		return false, err
	}
	if n == w.changes && !w.l.health.isFull.Load() {
		return false, nil
	}
	w.changes = -1 // not known if this fails
	err = w.c.one(`UPDATE outbox_meta SET commits = commits + 1, committed_by = ?
		WHERE id = 1 RETURNING commits`, w.l.epoch).Scan(&w.marker)
	if err == nil {
		w.changes = n + 1
	}
	return true, err
}

// commitStatement repeats COMMIT while it is only a lock that it waits for.
func (w *committer) commitStatement() error {
	for {
		err := w.c.control(commit)
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
		concludeAll(ran, w.closureError(err))
	case isConstraint(err):
		w.rollback()
		if len(ran) == 1 {
			ran[0].conclude(errors.Join(ErrVoid, err))
			return
		}
		w.apart(ran)
	case isFull(err):
		w.limbo(ran)
	default:
		w.l.fail(fmt.Errorf("%w: %w", ErrCommitUnknown, err))
		concludeAll(ran, w.l.Err())
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
		default:
			ran = w.hold(ran)
		}
		if w.l.failed() {
			concludeAll(ran, w.l.Err())
			return
		}
	}
}

// hold refuses what comes until it is time to look again. A ledger that is
// closed meanwhile fails: the fate of the batch is left to the next start.
func (w *committer) hold(ran []*request) []*request {
	again := time.NewTimer(fullRetryTime)
	defer again.Stop()
	for {
		w.q.refuse(ErrDiskFull, false)
		if w.q.over() {
			w.l.fail(ErrCommitUnknown)
			return ran
		}
		select {
		case <-w.q.wake:
		case <-again.C:
			return giveUp(ran)
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
	concludeAll(ran, map[fate]error{lost: ErrDiskFull, committed: nil, undecided: ErrCommitUnknown}[f])
}

// giveUp answers those whose caller waits no longer: they are told that it is
// unknown, not that it failed.
func giveUp(ran []*request) []*request {
	kept := ran[:0]
	for _, r := range ran {
		if r.ctx.Err() != nil {
			r.conclude(errors.Join(ErrCommitUnknown, r.ctx.Err()))
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
	if err := w.l.file.same(); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	if err := c.control(begin); err != nil {
		return err
	}
	var commits, by int64
	if err := c.one(`SELECT commits, committed_by FROM outbox_meta WHERE id = 1`).Scan(&commits, &by); err != nil {
		return err
	}
	switch {
	case commits == w.marker && by == w.l.epoch:
		*f = committed
	case commits <= w.marker:
		*f = lost
	}
	if _, err := c.exec(`UPDATE outbox_meta SET commits = MAX(commits, ?) + 1, committed_by = ? WHERE id = 1`,
		w.marker, w.l.epoch); err != nil {
		return err
	}
	return c.control(commit)
}

// written asks for a checkpoint when enough pages have gone to the log.
func (w *committer) written() {
	if n := w.c.pagesWritten(); n-w.frames >= checkpointPages || n < w.frames {
		w.frames = n
		w.l.ckpt.signal()
	}
	w.l.ckpt.commits.Add(1)
}
