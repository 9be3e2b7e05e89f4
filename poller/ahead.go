package poller

import (
	"context"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// ahead holds the operations that a backlog will ask for next, read while the
// present attempts run: the one writer does not read them then. Operations never
// change, so that it does not matter when they are read. What is missing here is
// read in the pass.
type ahead map[int64]*contract.Operation

// readAhead fills it for the next pass. shares are those of the last one.
func (p *Poller) readAhead(ctx context.Context, shares []share) {
	p.ahead = nil
	if !p.slots.backlog {
		return
	}
	err := p.l.Read(ctx, func(v *ledger.View) (err error) {
		var ids []int64
		for _, s := range shares {
			if s.n == 0 {
				continue
			}
			if ids, err = entry.Coming(v, ids, s.tool.Name, p.l.Now(), s.n); err != nil {
				return err
			}
		}
		p.ahead, err = intake.Load(v, ids)
		return err
	})
	if err != nil && ctx.Err() == nil {
		p.log.Debug("operations not read ahead", zap.Error(err))
	}
}

// missing are the ids that were not read ahead.
func (a ahead) missing(ids []int64) []int64 {
	out := ids[:0]
	for _, id := range ids {
		if a[id] == nil {
			out = append(out, id)
		}
	}
	return out
}
