package intake

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/ledger"
)

// apartTime is how long Apart goes on once it has come forward: the claims wait.
const apartTime = 250 * time.Millisecond

// Apart does what Drain could not do, with transactions of each row's own: it
// becomes an operation, else a refusal, else it is parked. A row that the file
// lets become none of these stays where it is: the error is that of the first one,
// and the sum counts the others all the same.
func Apart(ctx context.Context, l *ledger.Ledger, reg *contract.Registry, n int) (sum Drained, err error) {
	ids, err := waitingIDs(ctx, l, n)
	if err != nil {
		return Drained{}, err
	}
	began := time.Now()
	var stuck error
	for i, id := range ids {
		d, err := alone(ctx, l, reg, id)
		switch {
		case err == nil:
			sum.add(d)
		case ledger.Refusal(err) == "":
			return sum, err
		case stuck == nil:
			stuck = err
		}
		if sum.Moved() > 0 && time.Since(began) > apartTime && i+1 < len(ids) {
			sum.More = true
			return sum, stuck
		}
	}
	sum.More = len(ids) == n && sum.Moved() > 0
	return sum, stuck
}

// Moved is how many rows there were of which something became.
func (s *Drained) Moved() int { return s.Accepted + s.Repeated + s.Refused + s.Parked }

func (s *Drained) add(d Drained) {
	s.Accepted += d.Accepted
	s.Repeated += d.Repeated
	s.Refused += d.Refused
	s.Parked += d.Parked
}

func waitingIDs(ctx context.Context, l *ledger.Ledger, n int) (ids []int64, err error) {
	err = l.Read(ctx, func(v *ledger.View) error {
		return v.Each(func(r *ledger.Row) error {
			var id int64
			err := r.Scan(&id)
			ids = append(ids, id)
			return err
		}, `SELECT id FROM outbox_intake WHERE parked = 0 ORDER BY id LIMIT ?`, n)
	})
	if err != nil {
		return nil, fmt.Errorf("list intake: %w", err)
	}
	return ids, nil
}

// alone takes in one row, with whatever the file leaves to do.
func alone(ctx context.Context, l *ledger.Ledger, reg *contract.Registry, id int64) (sum Drained, err error) {
	ways := []func(*drain) error{
		func(d *drain) error { return d.one(id) },
		func(d *drain) error { return d.refuse(id, StoreRefused, storeMessage(err)) },
		func(d *drain) error { d.park(id); return nil },
	}
	for _, way := range ways {
		failed := l.Write(ctx, func(tx *ledger.Tx) error {
			d := drain{tx: tx, reg: reg}
			if err := way(&d); err != nil {
				return err
			}
			sum = d.sum
			return d.finish()
		})
		if failed == nil {
			return sum, nil
		}
		err = failed
		if ledger.Refusal(err) == "" {
			break
		}
	}
	return Drained{}, fmt.Errorf("take in a row alone: %w", err)
}

// one is for a row that may be gone by now.
func (d *drain) one(id int64) error {
	rows, _, err := rowsOf(d.tx, oneSQL, id)
	if err != nil || len(rows) == 0 {
		return err
	}
	return d.row(&rows[0])
}
