package intake

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// Retention is for how long things are kept that need nobody any more. What waits,
// runs, is unknown or dead is kept without limit.
type Retention struct {
	Delivered time.Duration // since the delivery
	Discarded time.Duration // since then
	Refused   time.Duration // rows of outbox_refused, since the refusal
	Tombstone time.Duration // what is left of an operation, since its purge
}

// Purged is what a Purge removed.
type Purged struct {
	Operations int // each left a tombstone
	Refused    int // rows of outbox_refused
	Tombstones int // their keys may be used again
	Kept       int // old enough, but something in the file still refers to them, or refuses
}

// purgeBatch is how many rows one transaction of a purge removes.
const purgeBatch = 100

// Purge removes what is older than the retention, in short transactions between
// which everybody else writes. An operation goes with its entry, receipt, evidence
// and reviews, and leaves its key in a tombstone, once every follow-up of it has
// ended too. A row that the file does not let
// go (a foreign key of the application, a trigger) stays, is counted in Kept, and
// stops no other. It may be cut short at any moment; what was removed counts.
func Purge(ctx context.Context, l *ledger.Ledger, keep Retention) (sum Purged, err error) {
	p := purge{ctx: ctx, l: l, keep: keep, now: l.Now()}
	var kept [3]int
	sum.Operations, kept[0], err = sweep(p, p.ended, p.operations)
	if err == nil {
		sum.Refused, kept[1], err = sweep(p, p.refusedRows, p.refused)
	}
	if err == nil {
		sum.Tombstones, kept[2], err = sweep(p, p.oldTombstones, p.tombstones)
	}
	sum.Kept = kept[0] + kept[1] + kept[2]
	if err != nil {
		return sum, fmt.Errorf("purge: %w", err)
	}
	return sum, nil
}

type purge struct {
	ctx  context.Context
	l    *ledger.Ledger
	keep Retention
	now  time.Time
}

// cursor is how far a sweep has come.
type cursor struct {
	after int64 // the id that was looked at last
	stuck int   // rows that were not let go so far
	done  bool  // nothing old is behind it
}

// sweep lists old rows and drops them, until there are none or only such as stay.
func sweep[T any](p purge, list func(*ledger.View, *cursor) ([]T, error), drop func(*ledger.Tx, []T) (int, error)) (sum, kept int, err error) {
	var at cursor
	for !at.done {
		var rows []T
		err := p.l.Read(p.ctx, func(v *ledger.View) (err error) {
			rows, err = list(v, &at)
			return err
		})
		if err != nil {
			return sum, at.stuck, err
		}
		n, err := batch(p, rows, drop)
		sum += n
		if err != nil {
			return sum, at.stuck, err
		}
		at.stuck += len(rows) - n
	}
	return sum, at.stuck, nil
}

// batch drops rows together, else one by one those that the file lets go.
func batch[T any](p purge, rows []T, drop func(*ledger.Tx, []T) (int, error)) (sum int, err error) {
	if len(rows) == 0 {
		return 0, nil
	}
	n, err := write(p, rows, drop)
	if err == nil || ledger.Refusal(err) == "" {
		return n, err
	}
	for i := range rows {
		n, err := write(p, rows[i:i+1], drop)
		if err != nil && ledger.Refusal(err) == "" {
			return sum, err
		}
		sum += n
	}
	return sum, nil
}

func write[T any](p purge, rows []T, drop func(*ledger.Tx, []T) (int, error)) (n int, err error) {
	err = p.l.Write(p.ctx, func(tx *ledger.Tx) (err error) {
		n, err = drop(tx, rows)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (p purge) until() entry.Until {
	return entry.Until{Delivered: p.now.Add(-p.keep.Delivered), Discarded: p.now.Add(-p.keep.Discarded)}
}

func (p purge) ended(v *ledger.View, at *cursor) (ids []int64, err error) {
	ids, at.after, at.done, err = entry.OldestEnded(v, at.after, p.until(), p.now, purgeBatch)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	return childless(v, ids)
}

// childlessSQL leaves out what a follow-up came of that has not ended itself.
const childlessSQL = `SELECT o.id FROM outbox_operation o WHERE o.id IN (SELECT value FROM json_each(?))
	AND NOT EXISTS (SELECT 1 FROM outbox_operation c JOIN outbox_entry e ON e.operation_id = c.id
		WHERE c.parent = o.status_ref AND e.state <> 'delivered' AND e.state <> 'discarded')
	ORDER BY o.id`

// childless are those of the operations to which nothing live refers. Follow-ups
// come with the end of their parent, and what has ended stays so: none is added
// between this look and the purge.
func childless(v *ledger.View, ids []int64) (free []int64, err error) {
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, fmt.Errorf("encode ids: %w", err)
	}
	err = v.Each(func(r *ledger.Row) error {
		var id int64
		err := r.Scan(&id)
		free = append(free, id)
		return err
	}, childlessSQL, string(list))
	if err != nil {
		return nil, fmt.Errorf("look for follow-ups: %w", err)
	}
	return free, nil
}

const (
	buryAllSQL = `INSERT INTO outbox_tombstone
		(tenant_id, subject_id, tool_name, idempotency_key, status_ref, request_sha256, state, purged_at)
		SELECT o.tenant_id, o.subject_id, o.tool_name, o.idempotency_key, o.status_ref, o.request_sha256,
			json_extract(e.value, '$.State'), ?2
		FROM json_each(?1) e JOIN outbox_operation o ON o.id = json_extract(e.value, '$.ID')`
	dropAllSQL = `DELETE FROM outbox_operation WHERE id IN (SELECT json_extract(value, '$.ID') FROM json_each(?1))`
)

// operations replaces operations by their tombstones.
func (p purge) operations(tx *ledger.Tx, ids []int64) (int, error) {
	gone, err := entry.Forget(tx, ids, p.until())
	if err != nil || len(gone) == 0 {
		return 0, err
	}
	list, err := json.Marshal(gone)
	if err != nil {
		return 0, fmt.Errorf("encode operations: %w", err)
	}
	if err := forgetApprovals(tx, gone); err != nil {
		return 0, err
	}
	if err := deadletter.Forget(tx, gone); err != nil {
		return 0, err
	}
	if err := whole(len(gone))(tx.Exec(buryAllSQL, string(list), tx.Now())); err != nil {
		return 0, fmt.Errorf("write tombstones: %w", err)
	}
	if err := whole(len(gone))(tx.Exec(dropAllSQL, string(list))); err != nil {
		return 0, fmt.Errorf("remove operations: %w", err)
	}
	return len(gone), nil
}

// whole is an error unless a statement changed n rows.
func whole(n int) func(int64, error) error {
	return func(changed int64, err error) error {
		if err == nil && changed != int64(n) {
			return ledger.ErrIgnored
		}
		return err
	}
}

func (p purge) refusedRows(v *ledger.View, at *cursor) (ids []int64, err error) {
	err = v.Each(func(r *ledger.Row) error {
		var id int64
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	}, `SELECT id FROM outbox_refused WHERE id > ? AND refused_at < ? ORDER BY id LIMIT ?`,
		at.after, p.now.Add(-p.keep.Refused), purgeBatch)
	if err != nil {
		return nil, fmt.Errorf("list refused rows: %w", err)
	}
	if at.done = len(ids) < purgeBatch; len(ids) > 0 {
		at.after = ids[len(ids)-1]
	}
	return ids, nil
}

func (p purge) refused(tx *ledger.Tx, ids []int64) (int, error) {
	list, err := json.Marshal(ids)
	if err != nil {
		return 0, fmt.Errorf("encode ids: %w", err)
	}
	n, err := tx.Exec(`DELETE FROM outbox_refused WHERE id IN (SELECT value FROM json_each(?))`, string(list))
	if err != nil {
		return 0, fmt.Errorf("remove refused rows: %w", err)
	}
	return int(n), nil
}

// scopeKey is a scope as a row of its four columns.
type scopeKey [4]string

func (p purge) oldTombstones(v *ledger.View, at *cursor) (keys []scopeKey, err error) {
	err = v.Each(func(r *ledger.Row) error {
		var k scopeKey
		err := r.Scan(&k[0], &k[1], &k[2], &k[3])
		keys = append(keys, k)
		return err
	}, `SELECT tenant_id, subject_id, tool_name, idempotency_key FROM outbox_tombstone
		WHERE purged_at < ? ORDER BY purged_at LIMIT ? OFFSET ?`, p.now.Add(-p.keep.Tombstone), purgeBatch, at.stuck)
	if err != nil {
		return nil, fmt.Errorf("list tombstones: %w", err)
	}
	at.done = len(keys) < purgeBatch
	return keys, nil
}

func (p purge) tombstones(tx *ledger.Tx, keys []scopeKey) (int, error) {
	list, err := json.Marshal(keys)
	if err != nil {
		return 0, fmt.Errorf("encode keys: %w", err)
	}
	n, err := tx.Exec(`DELETE FROM outbox_tombstone WHERE (tenant_id, subject_id, tool_name, idempotency_key) IN
		(SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?))`, string(list))
	if err != nil {
		return 0, fmt.Errorf("remove tombstones: %w", err)
	}
	return int(n), nil
}
