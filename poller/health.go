package poller

import (
	"fmt"
	"time"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// Load is what one tool has to do and what is left of it, at one moment.
type Load struct {
	InFlight    int64     // claimed or sending, questions not among them
	Due         int64     // pending, and could be attempted now if nothing else were in the way
	Later       int64     // pending, for later
	Waiting     int64     // for an approval
	Unknown     int64     // due or held
	Dead        int64     // for review
	Discarded   int64     // by a person
	OldestDue   time.Time // since when the oldest of Due is; zero: none is
	OldestDoubt time.Time // since when the oldest unknown one is without proof; zero: none is

	counted map[entry.State]int64
}

// States is how many entries of the tool are in each state, but for those that are
// delivered, which nobody counts.
func (l Load) States() map[entry.State]int64 { return l.counted }

// Loads counts the entries of each tool that are not delivered, by the two partial
// indexes: its cost grows with them and not with what was ever delivered.
func Loads(q ledger.Querier, now time.Time) (map[string]Load, error) {
	loads := map[string]Load{}
	err := q.Each(func(r *ledger.Row) error {
		var tool string
		var l Load
		var claimed, sending int64
		err := r.Scan(&tool, &claimed, &sending, &l.Due, &l.Later, &l.OldestDue)
		l.InFlight = claimed + sending
		l.counted = map[entry.State]int64{entry.Claimed: claimed, entry.Sending: sending, entry.Pending: l.Due + l.Later}
		loads[tool] = l
		return err
	}, `SELECT tool_name, SUM(state = 'claimed'), SUM(state = 'sending'),
		SUM(state = 'pending' AND due_at <= ?1), SUM(state = 'pending' AND due_at > ?1),
		MIN(IIF(state = 'pending' AND due_at <= ?1, due_at, NULL))
		FROM outbox_entry INDEXED BY outbox_entry_due WHERE due_at IS NOT NULL GROUP BY tool_name`, now)
	if err != nil {
		return nil, fmt.Errorf("count what is due: %w", err)
	}
	err = q.Each(func(r *ledger.Row) error {
		var tool string
		var state entry.State
		var n int64
		var doubt time.Time
		err := r.Scan(&state, &tool, &n, &doubt)
		l := loads[tool]
		l.keep(state, n, doubt)
		loads[tool] = l
		return err
	}, `SELECT state, tool_name, count(*), MIN(unproven_since) FROM outbox_entry INDEXED BY outbox_entry_kept
		WHERE (state = 'waiting' OR state = 'unknown' OR state = 'dead' OR state = 'discarded') GROUP BY state, tool_name`)
	if err != nil {
		return nil, fmt.Errorf("count what is kept: %w", err)
	}
	return loads, nil
}

func (l *Load) keep(state entry.State, n int64, doubt time.Time) {
	if l.counted == nil {
		l.counted = map[entry.State]int64{}
	}
	l.counted[state] = n
	switch state {
	case entry.Waiting:
		l.Waiting = n
	case entry.Unknown:
		l.Unknown, l.OldestDoubt = n, doubt
	case entry.Dead:
		l.Dead = n
	case entry.Discarded:
		l.Discarded = n
	}
}

// Plus is what two tools have to do together.
func (l Load) Plus(o Load) Load {
	sum := Load{InFlight: l.InFlight + o.InFlight, Due: l.Due + o.Due, Later: l.Later + o.Later, Waiting: l.Waiting + o.Waiting,
		Unknown: l.Unknown + o.Unknown, Dead: l.Dead + o.Dead, Discarded: l.Discarded + o.Discarded,
		OldestDue: l.OldestDue, OldestDoubt: l.OldestDoubt}
	if sum.OldestDue.IsZero() || !o.OldestDue.IsZero() && o.OldestDue.Before(sum.OldestDue) {
		sum.OldestDue = o.OldestDue
	}
	if sum.OldestDoubt.IsZero() || !o.OldestDoubt.IsZero() && o.OldestDoubt.Before(sum.OldestDoubt) {
		sum.OldestDoubt = o.OldestDoubt
	}
	return sum
}
