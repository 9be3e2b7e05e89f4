package daemon

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/ledger"
)

// closeRead is how long reading the last token may hold up the end.
const closeRead = time.Second

// hold finds out whether the file is older than what the lock file beside it
// knows, or was put back from a copy, and lets no token be given out again that
// may have been.
func (d *daemon) hold(ctx context.Context) error {
	side, err := d.lock.Sidecar()
	if err != nil {
		return err
	}
	s, err := d.standing(ctx)
	if err != nil {
		return err
	}
	older := side.Lineage == s.Lineage && s.LastToken < side.Floor
	if older {
		if err := d.ledger.Write(ctx, func(tx *ledger.Tx) error { return tx.Hold(side.Ceiling) }); err != nil {
			return fmt.Errorf("hold an older database: %w", err)
		}
	}
	if older || !s.Restored.IsZero() {
		d.log.Error("the database is an older copy: nothing is sent, asked or reviewed until `outboxd db release`",
			zap.Time("restored", s.Restored), zap.Bool("found_by_the_lock_file", older))
	}
	if s, err = d.standing(ctx); err != nil {
		return err
	}
	return d.lock.Reserve(s.Lineage, s.LastToken, s.LastToken)
}

func (d *daemon) standing(ctx context.Context) (s ledger.Standing, err error) {
	err = d.ledger.Read(ctx, func(v *ledger.View) error {
		s, err = ledger.Stand(v)
		return err
	})
	return s, err
}

// settleSidecar tells the lock file how far the database has come, so that any
// older copy is known for one.
func (d *daemon) settleSidecar() error {
	if d.lock == nil || d.o.ReadOnly || d.ledger.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeRead)
	defer cancel()
	s, err := d.standing(ctx)
	if err != nil {
		d.log.Warn("the lock file was not told how far the database has come", zap.Error(err))
		return nil // it knows that to a second
	}
	return d.lock.Settle(s.Lineage, s.LastToken)
}
