package poller

import "sync/atomic"

// pulse shows from outside that Run moves.
type pulse struct {
	began func()        // Run looks for work
	looks atomic.Uint64 // passes that are over, and turns of the drain
}

// Pulse grows whenever Run has looked once, for what to take in and for what to
// start, or while it drains has turned once: at the latest after a Wake, unless it
// is stuck or waits for the file.
func (p *Poller) Pulse() uint64 { return p.pulse.looks.Load() }
