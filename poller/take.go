package poller

import (
	"errors"
	"maps"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// take claims the picked entries under fresh tokens, and reads the operations of
// everything that this pass touches.
func (f *finder) take(tx *ledger.Tx, picked []candidate) error {
	ops, err := f.operations(tx, picked)
	if err != nil || len(picked) == 0 {
		return err
	}
	token, err := tx.Tokens(len(picked))
	if err != nil {
		return err
	}
	for i, c := range picked {
		op := ops[c.due.ID]
		if op == nil {
			continue // it stays due; somebody deleted its operation, and audit names it
		}
		var held entry.Held
		done, err := f.each(tx, func() (err error) {
			held, err = f.claim(tx, c, op, token+int64(i))
			return err
		})
		if errors.Is(err, entry.ErrStale) || !done {
			continue // it has moved since it was read: it is not ours to claim; or it stays due
		}
		if err != nil {
			return err
		}
		held.Untold = op.Turn == 0 // a session is told of every other end
		f.claims = append(f.claims, claim{held, c.due, op, c.tool, f.work, f.began, c.probe})
	}
	return nil
}

func (f *finder) operations(tx *ledger.Tx, picked []candidate) (map[int64]*contract.Operation, error) {
	ids := make([]int64, 0, len(picked)+len(f.moves))
	for _, c := range picked {
		ids = append(ids, c.due.ID)
	}
	for _, m := range f.moves {
		ids = append(ids, m.due.ID)
	}
	ops, err := f.load(tx, ids)
	for i := range f.moves {
		f.moves[i].op = ops[f.moves[i].due.ID]
	}
	return ops, err
}

// load reads what was not read ahead.
func (f *finder) load(tx *ledger.Tx, ids []int64) (map[int64]*contract.Operation, error) {
	ops := make(map[int64]*contract.Operation, len(ids))
	for _, id := range ids {
		if op := f.p.ahead[id]; op != nil {
			ops[id] = op
		}
	}
	rest := f.p.ahead.missing(ids)
	if len(rest) == 0 {
		return ops, nil
	}
	read, err := intake.Load(tx, rest)
	maps.Copy(ops, read)
	return ops, err
}

func (f *finder) claim(tx *ledger.Tx, c candidate, op *contract.Operation, token int64) (entry.Held, error) {
	l := entry.Lease{Token: token, Until: f.p.keeper.Until(tx.Now()), Over: over(tx.Now(), c.tool).Add(c.tool.GuardTime)}
	if c.due.State == entry.Unknown {
		return entry.Question(tx, c.due, l, false)
	}
	return entry.Take(tx, c.due, l, op.Effect.Marked())
}

// commitSlack is what a commit of the mark may take without shortening the
// attempt: time limits may be shorter than a commit is.
const commitSlack = time.Second

// over is when a request marked at now is known to be over whatever is heard of
// it: after its time limit and what the tool's query asks for on top.
func over(now time.Time, t *contract.Tool) time.Time {
	at := now.Add(t.Timeout + commitSlack)
	if t.Query != nil {
		at = at.Add(t.Query.NotBefore)
	}
	return at
}

// limits of a tool at this moment.
func (p *Poller) limits(t *contract.Tool, now time.Time, excused time.Duration) deadletter.Limits {
	return deadletter.Limits{Retry: t.Retry, KeyWindow: t.KeyWindow, Now: now,
		Excused: excused, NoAge: p.ageless.Load()}
}
