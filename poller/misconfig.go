package poller

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/handler"
)

// sameAnswers is how many entries in a row must get the same refusal before it
// is taken for a mistake in the config rather than in the entries.
const sameAnswers = 5

// suspicious are the answers that a wrong URL or a wrong credential gives.
var suspicious = map[string]bool{"http_401": true, "http_403": true, "http_404": true, "http_405": true}

// misconfigured pauses a tool whose downstream refuses one entry after the other
// in the same way: the rest of the backlog must not die of it.
func (p *Poller) misconfigured(c claim, o handler.Outcome) {
	refused := o.Observed == handler.Rejected && suspicious[o.Code]
	if !p.streaks.repeated(c.tool.Name, o.Code, refused, c.held.ID) {
		return
	}
	reason := "misconfigured: " + o.Code
	p.log.Error("tool paused: one entry after the other is refused in the same way",
		zap.String("tool", c.tool.Name), zap.String("code", o.Code))
	if err := p.Pause(context.Background(), c.tool.Name, reason); err != nil {
		p.log.Error("tool not paused", zap.String("tool", c.tool.Name), zap.Error(err))
	}
}

// streaks tells a mistake in the config from mistakes in the entries.
type streaks struct {
	mu    sync.Mutex // guards tools
	tools map[string]streak
}

// streak is how many entries in a row were refused in the same way.
type streak struct {
	code string
	last int64 // the entry
	n    int
}

// repeated counts a suspicious refusal and reports whether it is one too many;
// every other outcome ends the streak.
func (t *streaks) repeated(name, code string, suspicious bool, id int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.tools[name]
	switch {
	case !suspicious:
		delete(t.tools, name)
		return false
	case s.code != code:
		s = streak{code: code}
	case s.last == id:
		return false
	}
	if t.tools == nil {
		t.tools = map[string]streak{}
	}
	s.last = id
	if s.n++; s.n == sameAnswers {
		delete(t.tools, name) // whoever resumes the tool gets a new start
		return true
	}
	t.tools[name] = s
	return false
}
