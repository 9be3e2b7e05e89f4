package entry_test

import (
	"slices"
	"time"

	"github.com/outboxd/outboxd/entry"
)

// model is an entry as docs/states.md describes it: in place of the columns on what is
// unproven it knows every send that may still have an effect.
type model struct {
	row
	effect entry.Effect
	sends  []send // unproven ones, oldest first

}

type send struct {
	token int64
	at    time.Time
}

// columns is what the file must show.
func (m *model) columns() row {
	r := m.row
	r.Since, r.By = time.Time{}, 0
	if len(m.sends) > 0 {
		r.Since, r.By = m.sends[0].at, m.sends[0].token
	}
	return r
}

// holds: the lease, or the question, is h's and the entry stands where h thinks.
func (m *model) holds(h entry.Held) bool { return m.State == h.State && m.Token == h.Token }

func (m *model) to(s entry.State, due time.Time, reason string) {
	m.State, m.Due, m.Reason = s, due, reason
	m.Owner, m.Token = 0, 0
}

// giveUp: dead is proof of no effect.
func (m *model) giveUp(reason string) {
	if len(m.sends) == 0 {
		m.to(entry.Dead, time.Time{}, reason)
		return
	}
	m.to(entry.Unknown, time.Time{}, reason)
}

// earlier: something that was sent before token's attempt is unproven.
func (m *model) earlier(token int64) bool {
	return slices.ContainsFunc(m.sends, func(s send) bool { return s.token != token })
}

// over: the attempt under token is known to be over. That says nothing of an
// earlier one that may still be running.
func (m *model) over(token int64, now time.Time) {
	if !m.earlier(token) {
		m.Over = now
	}
}

// void: the attempt under token is proven to have done nothing.
func (m *model) void(token int64) {
	m.sends = slices.DeleteFunc(m.sends, func(s send) bool { return s.token == token })
}

func (m *model) marked(token int64, now, over time.Time) {
	if len(m.sends) > 0 && m.Over.After(over) {
		over = m.Over
	}
	m.State, m.Sent, m.Over = entry.Sending, now, over
	m.sends = append(m.sends, send{token, now})
}

// round: limits and counters count per round, attempt numbers go on.
func (m *model) round(at time.Time, excused int64) {
	m.RoundAt, m.Excused = at, excused
	m.Failures, m.Lapses, m.Queries, m.Suspect = 0, 0, 0, false
}

// lapse decides by the class that the operation was accepted under.
func (m *model) lapse(now time.Time) {
	again := m.State == entry.Claimed || m.effect == entry.Idempotent || m.effect == entry.Local
	switch {
	case again:
		m.to(entry.Pending, now, "")
	case m.effect == entry.Queryable:
		m.to(entry.Unknown, now, "lapsed")
	default:
		m.to(entry.Unknown, time.Time{}, "lapsed")
	}
	if m.effect == entry.Local {
		m.sends = nil // the effect would have been the commit that ends the attempt
	}
	if m.Suspect {
		m.Lapses++
	}
	m.Suspect = true
}
