package poller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// Released is what a release of a restored file came to.
type Released struct {
	Restored time.Time // when the file was put back; zero: it was not held
	Resumed  int       // sent again, with their keys
	Asked    int       // will be asked about
	Held     int       // unknown, for a person
}

// releaseBatch is how many entries one closure treats.
const releaseBatch = 200

// unconfigured is how long a request of a tool that is no longer configured may
// have been on its way.
const unconfigured = time.Hour

// Release ends the hold of a file that was put back from an older copy. Whatever
// stood in the copy may have been sent since: idempotent entries go on, queryable
// ones are asked about, the rest is unknown and held, reason "restored". A release
// that was cut off is simply done again: the hold ends last.
func (p *Poller) Release(ctx context.Context) (r Released, err error) {
	err = p.l.Read(ctx, func(v *ledger.View) error {
		s, err := ledger.Stand(v)
		r.Restored = s.Restored
		return err
	})
	if err != nil || r.Restored.IsZero() {
		return r, err
	}
	for after := int64(0); after >= 0 && err == nil; {
		var batch Released
		err = p.l.Write(ctx, func(tx *ledger.Tx) (err error) {
			batch, after, err = p.releaseSome(tx, r.Restored, after)
			return err
		})
		r.Resumed, r.Asked, r.Held = r.Resumed+batch.Resumed, r.Asked+batch.Asked, r.Held+batch.Held
	}
	if err != nil {
		return r, fmt.Errorf("treat what may have been sent: %w", err)
	}
	if err := p.l.Write(ctx, func(tx *ledger.Tx) error { return tx.Unhold() }); err != nil {
		return r, err
	}
	p.log.Warn("restored database released", zap.Time("restored", r.Restored),
		zap.Int("resumed", r.Resumed), zap.Int("asked", r.Asked), zap.Int("held", r.Held))
	p.Wake()
	return r, nil
}

// releaseSome treats the next entries. next is negative after the last.
func (p *Poller) releaseSome(tx *ledger.Tx, restored time.Time, after int64) (r Released, next int64, err error) {
	tools := map[string]toolRow{}
	if err := read(tx, tools); err != nil {
		return r, after, fmt.Errorf("read tools: %w", err)
	}
	list, err := entry.DoubtfulAfter(tx, after, restored, releaseBatch)
	if err != nil || len(list) == 0 {
		return r, -1, err
	}
	for _, d := range list {
		to, err := d.Doubt(tx, restored, p.overAfter(restored, d.Tool), tools[d.Tool].excused)
		switch {
		case errors.Is(err, entry.ErrStale):
			continue // it has moved since it was read, which needs no treatment: a late answer came
		case err != nil:
			return r, after, err
		case to == entry.Pending:
			r.Resumed++
			continue
		}
		now, err := entry.Get(tx, d.ID)
		if err != nil {
			return r, after, err
		}
		if now.DueAt.IsZero() {
			r.Held++
		} else {
			r.Asked++
		}
	}
	return r, list[len(list)-1].ID, nil
}

// overAfter is when a request of the tool that left before the file was put back
// is known to be over.
func (p *Poller) overAfter(restored time.Time, name string) time.Time {
	tool, ok := p.Work().Registry.Lookup(name)
	if !ok {
		return restored.Add(unconfigured)
	}
	return over(restored, tool)
}
