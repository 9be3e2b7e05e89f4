package poller

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/ledger"
)

// unproven pauses a tool that leaves too many entries unknown at once: each of them
// may cost a person time.
func (p *Poller) unproven(c claim) {
	b := c.tool.UnknownBudget
	if b.Count == 0 || !p.unknowns.many(c.tool.Name, b.Count+1, b.Per) {
		return
	}
	p.log.Error("tool paused: too many unknown outcomes at once", zap.String("tool", c.tool.Name),
		zap.Int("unknown", b.Count), zap.Duration("per", b.Per))
	reason := fmt.Sprintf("unknown_budget: more than %d in %s", b.Count, b.Per)
	err := p.persist(c.held, func(tx *ledger.Tx) error { return p.pause(tx, c.tool.Name, reason) })
	if err != nil {
		p.log.Error("tool not paused", zap.String("tool", c.tool.Name), zap.Error(err))
	}
}
