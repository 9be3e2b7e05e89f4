package poller

import (
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
)

// sameAnswers is how many entries in a row must fail in the same way before that
// is taken for a mistake in the config rather than in the entries.
const sameAnswers = 5

// suspicious are the answers that a wrong URL, a wrong credential, a wrong
// certificate, a wrong program or a wrong statement gives.
var suspicious = map[handler.Observed][]string{
	handler.Rejected: {"http_401", "http_403", "http_404", "http_405"},
	handler.NotSent: {"not_found", "not_executable", "bad_interpreter", "bad_format", "dir_missing",
		"tls_untrusted", "tls_expired", "tls_wrong_name", "tls_plain", "not_permitted"},
	handler.TryAgain: {"forbidden", "sqlite_1"},
}

// misconfigured pauses a tool of which one entry after the other fails in the
// same way, as a mistake in the config makes them: the rest of the backlog must
// not die of it.
func (p *Poller) misconfigured(c claim, o handler.Outcome) {
	failed := slices.Contains(suspicious[o.Observed], o.Code)
	if failed {
		p.log.Warn("tool looks misconfigured", p.fields(c, zap.String("code", o.Code))...)
	}
	if !p.streaks.repeated(c.tool.Name, o.Code, failed, c.held.ID) {
		return
	}
	p.log.Error("tool paused: one entry after the other fails in the same way",
		zap.String("tool", c.tool.Name), zap.String("code", o.Code))
	// As an outcome it is written until the file takes it.
	err := p.persist(c.held, func(tx *ledger.Tx) error { return p.pause(tx, c.tool.Name, "misconfigured: "+o.Code) })
	if err != nil {
		p.log.Error("tool not paused", zap.String("tool", c.tool.Name), zap.Error(err))
	}
}

// streaks tells a mistake in the config from mistakes in the entries.
type streaks struct {
	mu    sync.Mutex // guards tools
	tools map[string]streak
}

// streak is which entries in a row failed in the same way.
type streak struct {
	code    string
	entries []int64
}

// repeated counts a suspicious failure and reports whether it is one too many;
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
	case slices.Contains(s.entries, id):
		return false
	}
	if t.tools == nil {
		t.tools = map[string]streak{}
	}
	if s.entries = append(s.entries, id); len(s.entries) == sameAnswers {
		delete(t.tools, name) // whoever resumes the tool gets a new start
		return true
	}
	t.tools[name] = s
	return false
}
