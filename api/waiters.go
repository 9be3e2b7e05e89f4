package api

import "sync"

// waiters are the callers that wait for an operation to settle.
type waiters struct {
	mu   sync.Mutex // guards refs
	refs map[string]map[chan struct{}]struct{}
}

// Settled wakes those who wait for the operation: it has moved, and that is
// committed. It does not block.
func (ws *waiters) Settled(statusRef string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, ref := range []string{statusRef, anySettle} {
		for bell := range ws.refs[ref] {
			select {
			case bell <- struct{}{}:
			default: // it rings already
			}
		}
	}
}

// bell rings when the operation moves. It must be left.
func (ws *waiters) bell(statusRef string) (rings chan struct{}, leave func()) {
	bell := make(chan struct{}, 1)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.refs == nil {
		ws.refs = map[string]map[chan struct{}]struct{}{}
	}
	if ws.refs[statusRef] == nil {
		ws.refs[statusRef] = map[chan struct{}]struct{}{}
	}
	ws.refs[statusRef][bell] = struct{}{}
	return bell, func() { ws.leave(statusRef, bell) }
}

func (ws *waiters) leave(statusRef string, bell chan struct{}) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.refs[statusRef], bell)
	if len(ws.refs[statusRef]) == 0 {
		delete(ws.refs, statusRef)
	}
}
