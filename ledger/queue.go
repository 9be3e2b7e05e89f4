package ledger

import (
	"context"
	"errors"
	"sync"
)

// request is one closure that waits for the committer. Only the committer
// touches err; the caller reads done.
type request struct {
	ctx  context.Context
	fn   func(*Tx) error
	err  error
	done chan error
}

func (r *request) answer(err error) { r.done <- err }

// queue is what waits for the committer: heartbeats first.
type queue struct {
	wake chan struct{} // capacity 1: something waits, or the queue was shut

	mu     sync.Mutex // guards what follows
	urgent []*request
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

// pop takes the next request whose caller still waits; it answers the others.
func (q *queue) pop() *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		from := &q.urgent
		if len(q.urgent) == 0 {
			from = &q.normal
		}
		if len(*from) == 0 {
			return nil
		}
		r := (*from)[0]
		(*from)[0] = nil
		*from = (*from)[1:]
		if r.ctx.Err() == nil {
			return r
		}
		r.answer(r.ctx.Err())
	}
}

func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.urgent)+len(q.normal) == 0
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
	q.urgent, q.normal = keep(q.urgent), keep(q.normal)
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
