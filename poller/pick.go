package poller

import (
	"errors"
	"sort"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// pick probes each tool that is not paused and merges what is due by due time.
func (f *finder) pick(tx *ledger.Tx) ([]candidate, error) {
	var found []candidate
	for _, s := range f.shares {
		row, probe, wait := f.tools[s.tool.Name], false, time.Duration(0)
		if !row.pausedAt.IsZero() {
			continue
		}
		if s.n, probe, wait = row.admits(s.tool, s.runs, s.n, tx.Now()); wait > s.wait {
			s.wait = wait
		}
		rows, err := f.probe(tx, s)
		if err != nil {
			return nil, err
		}
		for _, d := range rows {
			found = append(found, candidate{d, s.tool, probe})
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].due.DueAt.Before(found[j].due.DueAt) })
	return f.sift(tx, found)
}

// probe lists what of one tool may start. An idle tool costs one look at its
// next due time.
func (f *finder) probe(tx *ledger.Tx, s share) (rows []entry.Due, err error) {
	first, err := entry.NextDue(tx, s.tool.Name, time.UnixMilli(0))
	if err != nil {
		return nil, err
	}
	if first.IsZero() || first.After(tx.Now()) {
		f.soonest(first)
		return nil, nil
	}
	if s.n == 0 {
		f.defers(s.wait)
	} else if rows, err = entry.Probe(tx, s.tool.Name, s.n, f.suspects); err != nil {
		return nil, err
	} else if len(rows) == s.n {
		f.more = true
		f.defers(s.wait)
		return rows, nil
	}
	later, err := entry.NextDue(tx, s.tool.Name, tx.Now())
	f.soonest(later)
	return rows, err
}

// defers: more of a tool may be due than its rate allows at this moment.
func (f *finder) defers(wait time.Duration) {
	if wait > 0 && (f.rest == 0 || wait < f.rest) {
		f.rest = wait
	}
}

// soonest notes when an entry will be due; zero: none will.
func (f *finder) soonest(at time.Time) {
	if !at.IsZero() && (f.next.IsZero() || at.Before(f.next)) {
		f.next = at
	}
}

type candidate struct {
	due   entry.Due
	tool  *contract.Tool
	probe bool
}

// sift keeps what may start and moves what must not: past a limit, or leased by
// a process that lets its leases run out.
func (f *finder) sift(tx *ledger.Tx, found []candidate) ([]candidate, error) {
	var picked []candidate
	suspects := 0
	for _, c := range found {
		if c.due.Suspect && c.due.State == entry.Pending {
			if suspects++; suspects > 1 {
				f.more = true
				continue
			}
		}
		if len(picked) == f.free {
			f.more = true
			break
		}
		moved := false
		done, err := f.each(tx, func() (err error) {
			moved, err = f.move(tx, c)
			return err
		})
		if err != nil {
			return nil, err
		}
		if moved || !done {
			continue
		}
		picked = append(picked, c)
	}
	return picked, nil
}

// move settles what needs no attempt. It reports whether it did.
func (f *finder) move(tx *ledger.Tx, c candidate) (bool, error) {
	switch {
	case c.due.Token != 0:
		return true, f.note(c.due, "", "lease_over", c.due.Held().Lapse(tx))
	case c.due.State == entry.Waiting:
		const reason = "approval_expired"
		return true, f.note(c.due, entry.Discarded, reason, entry.Drop(tx, entry.Refuse, c.due.ID, entry.Waiting, reason))
	case c.due.State == entry.Unknown && f.work.Handlers[c.tool.Name].Asker == nil:
		return true, f.expire(tx, c.due, deadletter.NoQuery)
	case c.due.State != entry.Pending:
		return false, nil
	}
	reason := f.p.limits(c.tool, tx.Now(), f.tools[c.tool.Name].excused).AtClaim(c.due)
	if reason == "" {
		return false, nil
	}
	return true, f.expire(tx, c.due, reason)
}

func (f *finder) expire(tx *ledger.Tx, d entry.Due, reason string) error {
	to, err := entry.Expire(tx, d, reason)
	return f.note(d, to, reason, err)
}

// note keeps what was moved, to be told once it is committed.
func (f *finder) note(d entry.Due, to entry.State, code string, err error) error {
	if errors.Is(err, entry.ErrStale) {
		return nil // it has moved since it was read: it is not ours to move
	}
	f.moves = append(f.moves, move{due: d, to: to, code: code})
	return err
}
