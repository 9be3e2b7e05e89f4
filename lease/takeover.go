package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// lapseBatch keeps a closure short: other writers wait for it.
const lapseBatch = 256

// TakeOver ends every lease that an earlier process left behind and returns how
// many there were. The caller holds the exclusive lock: their holders are dead.
func TakeOver(ctx context.Context, l *ledger.Ledger) (int, error) {
	return lapse(ctx, l, func(d entry.Due) bool { return d.Owner != l.Epoch() })
}

// lapse ends the leases that gone picks, each if it is still the same one and
// was not renewed meanwhile.
func lapse(ctx context.Context, l *ledger.Ledger, gone func(entry.Due) bool) (int, error) {
	var rows []entry.Due
	err := l.Read(ctx, func(v *ledger.View) error {
		leased, err := entry.Leased(v)
		for _, d := range leased {
			if gone(d) {
				rows = append(rows, d)
			}
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("find leases: %w", err)
	}
	total := 0
	for len(rows) > 0 {
		batch := rows[:min(lapseBatch, len(rows))]
		rows = rows[len(batch):]
		n, err := lapseRows(ctx, l, batch, gone)
		if err != nil {
			return total, fmt.Errorf("end leases: %w", err)
		}
		total += n
	}
	return total, nil
}

func lapseRows(ctx context.Context, l *ledger.Ledger, rows []entry.Due, gone func(entry.Due) bool) (n int, err error) {
	err = l.Write(ctx, func(tx *ledger.Tx) error {
		n = 0
		for _, seen := range rows {
			d, err := entry.Get(tx, seen.ID)
			if err != nil {
				return err
			}
			if d.Token != seen.Token || !gone(d) {
				continue // settled, renewed or taken by another since: nobody's to end
			}
			switch err := d.Held().Lapse(tx); {
			case err == nil:
				n++
			case !errors.Is(err, entry.ErrStale): // stale: it has been settled since
				return err
			}
		}
		return nil
	})
	return n, err
}
