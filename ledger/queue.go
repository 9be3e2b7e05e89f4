package ledger

import (
	"context"
	"errors"
	"sync"
)

// request is one closure that waits for the committer. The caller reads done;
// the rest belongs to the committer.
type request struct {
	ctx   context.Context
	fn    func(*Tx) error
	err   error // what the closure came to when it last ran
	lost  bool  // it ran in a batch that was lost
	alone bool  // it must run in a batch of its own
	done  chan error
}

func (r *request) answer(err error) { r.done <- err }

// conclude answers what became of the batch, or what the closure itself came to
// where that was an error: then nothing of it was to be kept.
func (r *request) conclude(err error) {
	if r.err != nil {
		err = r.err
	}
	r.answer(err)
}

// queue is what waits for the committer: heartbeats first.
type queue struct {
	wake chan struct{} // capacity 1: something waits, or the queue was shut

	mu     sync.Mutex // guards what follows
	urgent []*request
	again  []*request // ran in a batch that was lost
	normal []*request
	shut   error // why nothing more is taken
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) push(r *request, urgent bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shut != nil {
		return q.shut
	}
	if urgent {
		q.urgent = append(q.urgent, r)
	} else {
		q.normal = append(q.normal, r)
	}
	q.signal()
	return nil
}

// putBack lets requests run again, before those that have not run yet.
func (q *queue) putBack(rs []*request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.again = append(q.again, rs...)
}

// pop takes the next request for a batch that holds n by now; nil: the batch is
// complete. It answers those whose caller gave up before they ran.
func (q *queue) pop(n int) *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		from := q.head()
		if from == nil || (n > 0 && (*from)[0].alone) {
			return nil
		}
		r := (*from)[0]
		(*from)[0] = nil
		*from = (*from)[1:]
		if r.lost || r.ctx.Err() == nil {
			return r
		}
		r.answer(r.ctx.Err())
	}
}

// head is the list to take from, nil when nothing waits. mu is held.
func (q *queue) head() *[]*request {
	for _, l := range []*[]*request{&q.urgent, &q.again, &q.normal} {
		if len(*l) > 0 {
			return l
		}
	}
	return nil
}

func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.head() == nil
}

// over: nothing waits, and nothing will. Both are looked at under one lock: what
// is pushed in between would never be worked on.
func (q *queue) over() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shut != nil && q.head() == nil
}

// refuse answers everything that waits, or with ended only those whose caller
// has given up.
func (q *queue) refuse(err error, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	keep := func(rs []*request) []*request {
		kept := rs[:0]
		for _, r := range rs {
			switch {
			case !ended:
				r.answer(err)
			case r.ctx.Err() != nil:
				r.answer(errors.Join(err, r.ctx.Err()))
			default:
				kept = append(kept, r)
			}
		}
		clear(rs[len(kept):])
		return kept
	}
	q.urgent, q.again, q.normal = keep(q.urgent), keep(q.again), keep(q.normal)
}

// close stops taking requests; those that wait are still worked on.
func (q *queue) close(why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shut == nil {
		q.shut = why
	}
	q.signal()
}

func (q *queue) closed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shut != nil
}
