package poller

import (
	"context"

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
	if !p.tools.repeated(c.tool.Name, o.Code, refused, c.held.ID) {
		return
	}
	reason := "misconfigured: " + o.Code
	p.log.Error("tool paused: one entry after the other is refused in the same way",
		zap.String("tool", c.tool.Name), zap.String("code", o.Code))
	if err := p.Pause(context.Background(), c.tool.Name, reason); err != nil {
		p.log.Error("tool not paused", zap.String("tool", c.tool.Name), zap.Error(err))
	}
}
