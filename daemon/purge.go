package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/intake"
)

// firstPurge is how soon after a start the first purge runs: a daemon that is
// restarted often purges too.
const firstPurge = time.Minute

// purges removes what is older than the retention, as often as the configuration
// of that moment says.
func (d *daemon) purges(ctx context.Context) error {
	wait := time.NewTimer(min(firstPurge, d.retention.Load().Every))
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wait.C:
		}
		if _, err := d.purge(ctx); err != nil && ctx.Err() == nil && d.ledger.Err() == nil {
			d.log.Warn("purge not finished: it goes on next time", zap.Error(err))
		}
		wait.Reset(d.retention.Load().Every)
	}
}

// purge runs once.
func (d *daemon) purge(ctx context.Context) (intake.Purged, error) {
	keep := d.retention.Load()
	sum, err := intake.Purge(ctx, d.ledger, intake.Retention{
		Delivered: keep.Delivered, Discarded: keep.Discarded, Refused: keep.Refused, Tombstone: keep.Tombstone,
	})
	d.metrics.purged(sum)
	if sum.Operations+sum.Refused+sum.Tombstones > 0 {
		d.log.Info("purged", zap.Int("operations", sum.Operations), zap.Int("refused", sum.Refused), zap.Int("tombstones", sum.Tombstones))
	}
	if sum.Kept > 0 {
		d.log.Warn("old rows are kept: foreign keys or triggers of the application do not let them go", zap.Int("rows", sum.Kept))
	}
	return sum, err
}
