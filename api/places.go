package api

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/outboxd/outboxd/ledger"
)

// places bounds how many of those who would keep a reader for long may do so at
// a time. A uid has at most one place, so that none takes them all.
type places struct {
	mu    sync.Mutex // guards what follows
	free  int
	taken map[int]bool  // by uid
	left  chan struct{} // closed when a place is left, then another one
}

func newPlaces(n int) *places {
	return &places{free: n, taken: map[int]bool{}, left: make(chan struct{})}
}

// take waits for a place until ctx ends. It must be left.
func (p *places) take(ctx context.Context, uid int) (leave func(), err error) {
	for {
		left, ok := p.try(uid)
		if ok {
			return func() { p.leave(uid) }, nil
		}
		select {
		case <-left:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a place: %w", ctx.Err())
		}
	}
}

func (p *places) try(uid int) (left <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free == 0 || p.taken[uid] {
		return p.left, false
	}
	p.free--
	p.taken[uid] = true
	return nil, true
}

func (p *places) leave(uid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free++
	delete(p.taken, uid)
	close(p.left)
	p.left = make(chan struct{})
}

// place waits for one of the places, as long as a caller waits.
func (s *API) place(c *call, of *places) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	return of.take(ctx, c.peer.UID)
}

// scan reads what may be many rows, in a place of its own and for a limited time,
// so that such calls never take every reader.
func (s *API) scan(c *call, fn func(*ledger.View) error) error {
	leave, err := s.place(c, s.scans)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.scan)
	defer cancel()
	if err := s.d.Ledger.Read(ctx, fn); err != nil {
		return errors.Join(ctx.Err(), err) // an interrupted statement does not say why
	}
	return nil
}
