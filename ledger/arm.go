package ledger

import (
	"context"
	"errors"
	"os"

	"github.com/outboxd/outboxd/chaos/point"
)

// arm turns on what is to break, if this file was made for it or is made now.
func (l *Ledger) arm(c *conn, created bool) error {
	if len(l.opts.Armed) == 0 {
		return nil
	}
	marked := created && l.opts.ForChaos
	if !marked {
		var known int64
		if err := c.one(`SELECT count(*) FROM pragma_table_info('outbox_meta') WHERE name = 'for_chaos'`).Scan(&known); err != nil {
			return openError(err)
		}
		if known == 0 {
			return ErrNotForChaos
		}
		if err := c.one(`SELECT for_chaos FROM outbox_meta WHERE id = 1`).Scan(&marked); err != nil {
			return openError(err)
		}
	}
	if !marked {
		return ErrNotForChaos
	}
	point.Arm(l.opts.Armed, os.Stderr)
	return nil
}

// armRestore turns on what is to break in a restore, if the file that it replaces
// was made for it: a backup carries no such mark.
func armRestore(ctx context.Context, path string, plan point.Plan) error {
	if len(plan) == 0 {
		return nil
	}
	s, err := openSession(ctx, path, readOnly)
	if err != nil {
		return openError(err)
	}
	var marked int64
	err = s.one(`SELECT for_chaos FROM outbox_meta WHERE id = 1`, &marked)
	if err = errors.Join(openError(err), s.close()); err != nil {
		return err
	}
	if marked == 0 {
		return ErrNotForChaos
	}
	point.Arm(plan, os.Stderr)
	return nil
}
