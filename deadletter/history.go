package deadletter

import (
	"fmt"
	"time"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
)

// End is how a recorded attempt ended.
type End string

// The ends of an attempt, or of a round.
const (
	Succeeded End = "delivered"
	Failed    End = "failed"   // it may be tried again
	Refused   End = "rejected" // it is dead at once
	Doubted   End = "unknown"  // it must not be sent again by itself
	GaveUp    End = "given_up" // a limit was reached
	Open      End = "open"     // it goes on, or nothing recorded says how it would end
)

// Tried is one recorded attempt.
type Tried struct {
	Attempt int
	At      time.Time // when it ended
	End     End
	guard   bool // it was refused before anything was sent
}

// Round is one round of one operation as it was recorded.
type Round struct {
	ID       int64 // of the operation
	Number   int
	Began    time.Time
	Attempts []Tried // at least one
	over     bool    // nothing goes on by itself
}

// historySize is how many operations a history goes back, at most.
const historySize = 100000

const (
	oldestSQL = `SELECT COALESCE(min(id), 0), count(*) FROM (SELECT id FROM outbox_operation
		WHERE tool_name = ?1 AND accepted_at >= ?2 ORDER BY id DESC LIMIT ?3)`
	triedSQL = `SELECT a.operation_id, a.round, a.attempt, a.kind, a.class, a.at, o.effect, MAX(o.accepted_at, COALESCE(o.not_before, 0)),
		a.round < e.round OR e.state = 'dead' OR e.state = 'unknown' OR e.state = 'discarded'
		FROM outbox_operation AS o CROSS JOIN outbox_attempt AS a ON a.operation_id = o.id
		JOIN outbox_entry AS e ON e.operation_id = o.id
		WHERE o.id >= ?2 AND o.tool_name = ?1 AND a.kind IN ('outcome', 'blocked') ORDER BY a.operation_id, a.id`
	receivedSQL = `SELECT r.operation_id, e.round, r.attempt, r.at, MAX(o.accepted_at, COALESCE(o.not_before, 0))
		FROM outbox_operation AS o CROSS JOIN outbox_receipt AS r ON r.operation_id = o.id
		JOIN outbox_entry AS e ON e.operation_id = o.id
		WHERE o.id >= ?2 AND o.tool_name = ?1 AND r.how <> 'resolved' ORDER BY r.operation_id`
)

// History is what was recorded of the attempts of one tool, for operations accepted
// at since or later, at most the last 100000 of them.
func History(q ledger.Querier, tool string, since time.Time) ([]Round, error) {
	if since.IsZero() {
		since = time.UnixMilli(0)
	}
	var first int64
	var n int
	if err := q.One(oldestSQL, tool, since, historySize).Scan(&first, &n); err != nil {
		return nil, fmt.Errorf("look for history: %w", err)
	}
	var h history
	if n == 0 {
		return nil, nil
	}
	if err := q.Each(h.tried, triedSQL, tool, first); err != nil {
		return nil, fmt.Errorf("read attempts: %w", err)
	}
	if err := q.Each(h.received, receivedSQL, tool, first); err != nil {
		return nil, fmt.Errorf("read receipts: %w", err)
	}
	return h.rounds, nil
}

// history gathers rounds; attempts come in the order of operations.
type history struct {
	rounds []Round
	places map[place]int
}

type place struct {
	id    int64
	round int
}

func (h *history) tried(r *ledger.Row) error {
	var at place
	var t Tried
	var kind entry.Kind
	var class handler.Observed
	var effect entry.Effect
	var begin time.Time
	var over bool
	if err := r.Scan(&at.id, &at.round, &t.Attempt, &kind, &class, &t.At, &effect, &begin, &over); err != nil {
		return err
	}
	t.End, t.guard = Failed, kind == entry.Blocked
	switch {
	case t.guard:
	case class == handler.Rejected:
		t.End = Refused
	case class == handler.MayHaveHappened || class == handler.InProgress:
		if effect == entry.Queryable || effect == entry.Opaque {
			t.End = Doubted
		}
	}
	h.add(at, t, begin)
	h.rounds[h.places[at]].over = over
	return nil
}

func (h *history) received(r *ledger.Row) error {
	t := Tried{End: Succeeded}
	var at place
	var begin time.Time
	if err := r.Scan(&at.id, &at.round, &t.Attempt, &t.At, &begin); err != nil {
		return err
	}
	h.add(at, t, begin)
	return nil
}

// add appends to a round. What was in doubt and is followed by another attempt had
// been found to have done nothing; where a receipt of the same attempt follows, it
// had not.
func (h *history) add(at place, t Tried, begin time.Time) {
	if h.places == nil {
		h.places = map[place]int{}
	}
	i, ok := h.places[at]
	if !ok {
		if at.round > 1 {
			begin = t.At // when a review's round began is not recorded for all of them
		}
		i = len(h.rounds)
		h.places[at] = i
		h.rounds = append(h.rounds, Round{ID: at.id, Number: at.round, Began: begin})
	}
	list := h.rounds[i].Attempts
	if n := len(list); n > 0 && list[n-1].End == Doubted {
		if list[n-1].Attempt == t.Attempt {
			list = list[:n-1]
		} else {
			list[n-1].End = Failed
		}
	}
	h.rounds[i].Attempts = append(list, t)
}
