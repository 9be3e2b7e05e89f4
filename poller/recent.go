package poller

import (
	"sync"
	"time"
)

// recent remembers when something happened to each tool, to tell when it happens
// too often.
type recent struct {
	mu    sync.Mutex // guards tools
	tools map[string][]time.Time
}

// many notes that it happened now and reports whether that is the count-th time
// within per. The next one is the first again.
func (r *recent) many(tool string, count int, per time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tools == nil {
		r.tools = map[string][]time.Time{}
	}
	now := time.Now()
	times := append(r.tools[tool], now)
	for now.Sub(times[0]) > per {
		times = times[1:]
	}
	if len(times) >= count {
		delete(r.tools, tool)
		return true
	}
	r.tools[tool] = times
	return false
}

// forget begins to count anew.
func (r *recent) forget(tool string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tools, tool)
}
