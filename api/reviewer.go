package api

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// reviewer is one review under way.
type reviewer struct {
	api    *API
	ctx    context.Context
	body   Review
	review deadletter.Review
	due    time.Time // of the next new round; zero: now
	out    ReviewResult
}

// chosen is one entry that a review is to decide about.
type chosen struct {
	id    int64
	round int         // that it was selected in; 0: any
	state entry.State // that it was selected in; empty: any
}

// verdictOf is what became of it, or would.
type verdictOf struct {
	id    int64
	ref   string
	state entry.State
	due   time.Time
	err   error // a *deadletter.Refusal; nil: done
	gone  bool  // it has moved since it was selected: it is not decided about
}

// filtered decides about what the filter selects, up to the limit.
func (k *reviewer) filtered(c *call) error {
	sel, err := k.api.selection(c, *k.body.Filter)
	if err != nil {
		return err
	}
	limit := k.body.Limit
	if limit == 0 {
		limit = reviewDefault
	}
	var letters []deadletter.Letter
	err = k.api.scan(c, func(v *ledger.View) (err error) {
		letters, err = sel.First(v, limit+1)
		return err
	})
	if err != nil {
		return fmt.Errorf("select entries: %w", err)
	}
	if len(letters) > limit {
		letters = letters[:limit]
		k.out.Next = letters[limit-1].StatusRef
	}
	list := make([]chosen, len(letters))
	for i, l := range letters {
		list[i] = chosen{l.ID, l.Round, l.State}
	}
	return k.each(list, func(v verdictOf) {
		if v.gone {
			return
		}
		k.count(v)
	})
}

func (k *reviewer) count(v verdictOf) {
	k.out.Matched++
	refusal, refused := errors.AsType[*deadletter.Refusal](v.err)
	if !refused {
		k.out.Done++
		return
	}
	if k.out.Refused == nil {
		k.out.Refused = map[string]int{}
	}
	k.out.Refused[refusal.Code]++
}

// each decides in batches, each a short transaction: what is done stays done when a
// later one is cut short.
func (k *reviewer) each(list []chosen, fn func(verdictOf)) error {
	for batch := range slices.Chunk(list, reviewBatch) {
		var verdicts []verdictOf
		var next time.Time
		decide := func(q ledger.Querier, tx *ledger.Tx, now time.Time) (err error) {
			verdicts, next, err = k.batch(q, tx, now, batch)
			return err
		}
		var err error
		if k.body.DryRun {
			err = k.api.d.Ledger.Read(k.ctx, func(v *ledger.View) error { return decide(v, nil, k.api.d.Ledger.Now()) })
		} else {
			err = k.api.d.Ledger.Write(k.ctx, func(tx *ledger.Tx) error { return decide(tx, tx, tx.Now()) })
		}
		if err != nil {
			return fmt.Errorf("review: %w", err)
		}
		k.due, k.out.DueNext = next, next
		for _, v := range verdicts {
			if v.err == nil && !v.gone && !k.body.DryRun {
				k.api.Settled(v.ref)
			}
			fn(v)
		}
		if !k.body.DryRun {
			k.api.d.Poller.Wake()
		}
	}
	return nil
}

// batch decides about some entries in one transaction, or, with a nil tx, only
// finds out what it would do.
func (k *reviewer) batch(q ledger.Querier, tx *ledger.Tx, now time.Time, list []chosen) (out []verdictOf, due time.Time, err error) {
	ids := make([]int64, len(list))
	for i, x := range list {
		ids[i] = x.id
	}
	ops, err := intake.Load(q, ids)
	if err != nil {
		return nil, due, err
	}
	if due = k.due; due.Before(now) {
		due = now
	}
	for _, x := range list {
		v := verdictOf{id: x.id, gone: true}
		d, err := entry.Get(q, x.id)
		op := ops[x.id]
		if errors.Is(err, entry.ErrNotFound) || op == nil {
			out = append(out, v)
			continue
		}
		if err != nil {
			return nil, due, err
		}
		v.ref, v.state = op.StatusRef, d.State
		if v.gone = x.round != 0 && (d.Round != x.round || d.State != x.state); !v.gone {
			s := deadletter.Subject{Due: d, Op: op}
			s.Tool, _ = k.api.d.Poller.Work().Registry.Lookup(op.Scope.Tool)
			if err := k.decide(tx, now, due, s, &v); err != nil {
				return nil, due, err
			}
			if v.state == entry.Pending && v.err == nil {
				due = due.Add(k.step(s.Tool))
			}
		}
		out = append(out, v)
	}
	return out, due, nil
}

func (k *reviewer) decide(tx *ledger.Tx, now, due time.Time, s deadletter.Subject, v *verdictOf) (err error) {
	if tx == nil {
		err = k.review.Check(now, s)
	} else {
		var to entry.State
		if to, err = k.review.Apply(tx, s, due); err == nil {
			v.state = to
		}
	}
	if refusal, ok := errors.AsType[*deadletter.Refusal](err); ok {
		v.err = refusal
		return nil
	}
	if err == nil && v.state == entry.Pending {
		v.due = due
	}
	return err
}

// step is the time between two new rounds.
func (k *reviewer) step(tool *contract.Tool) time.Duration {
	if k.body.PerSecond > 0 {
		return time.Second / time.Duration(k.body.PerSecond)
	}
	step := time.Second / reviewPace
	if tool != nil && tool.Rate.Events > 0 {
		step = max(step, 2*tool.Rate.Per/time.Duration(tool.Rate.Events))
	}
	return step
}

// named decides about the refs. With one of them a refusal is the answer.
func (k *reviewer) named() error {
	var list []chosen
	seen := map[string]int64{} // 0: there is none
	for _, ref := range k.body.Refs {
		if _, twice := seen[ref]; twice {
			continue
		}
		id, err := k.api.idOf(k.ctx, ref)
		p, no := errors.AsType[*Problem](err)
		if err != nil && (!no || len(k.body.Refs) == 1) {
			return err
		}
		if seen[ref] = id; no {
			k.refuse(ReviewedEntry{StatusRef: ref, Code: p.Code, Detail: p.Detail})
			continue
		}
		list = append(list, chosen{id: id})
	}
	var only *Problem
	err := k.each(list, func(v verdictOf) {
		if v.gone { // purged since it was looked up
			k.refuse(ReviewedEntry{StatusRef: v.ref, Code: "NOT_FOUND", Detail: kinds["NOT_FOUND"].detail})
			return
		}
		k.count(v)
		x := ReviewedEntry{StatusRef: v.ref, Done: v.err == nil, State: v.state, DueAt: v.due}
		if refusal, ok := errors.AsType[*deadletter.Refusal](v.err); ok {
			x.Code, x.Detail = refusal.Code, refusal.What
			only = refusalOf(refusal)
		}
		k.out.Results = append(k.out.Results, x)
	})
	if err == nil && len(k.body.Refs) == 1 && only != nil {
		return only
	}
	return err
}

func (k *reviewer) refuse(x ReviewedEntry) {
	k.out.Matched++
	k.out.Results = append(k.out.Results, x)
	if k.out.Refused == nil {
		k.out.Refused = map[string]int{}
	}
	k.out.Refused[x.Code]++
}

// refusalOf is the problem of a review that is not carried out: 409, with the
// present state.
func refusalOf(r *deadletter.Refusal) *Problem {
	p := problem(r.Code)
	p.Detail, p.State = r.What, r.State.Status()
	return p
}

// idOf finds the operation of a status_ref, purged ones among them.
func (s *API) idOf(ctx context.Context, ref string) (id int64, err error) {
	var purged bool
	err = s.d.Ledger.Read(ctx, func(v *ledger.View) error {
		err := v.One(`SELECT id FROM outbox_operation WHERE status_ref = ?`, ref).Scan(&id)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		purged, err = intake.WasPurged(v, ref)
		return err
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("find operation: %w", err)
	case purged:
		return 0, problem("ALREADY_PURGED")
	case id == 0:
		return 0, problem("NOT_FOUND")
	}
	return id, nil
}
