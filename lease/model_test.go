package lease_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// Two processes on one file claim, mark, renew, let lapse and settle at random,
// with every right that they ever had. A map says what must come of it.

// lent is what the model knows of one entry.
type lent struct {
	id     int64
	effect entry.Effect
	state  entry.State
	owner  int // 0 or 1; meaningless without a token
	token  int64
	last   int64     // the last claim's token
	until  time.Time // when the lease is over, or the entry due; zero: held or ended
	again  bool      // a suspect
	lapses int
	tries  int
}

// right is what a process was once given.
type right struct {
	owner int
	held  entry.Held
}

type market struct {
	files [2]*ledger.Ledger
	now   *time.Time
	lent  []*lent
	given []right
	high  int64 // the highest token so far
}

func TestLeasesOfTwoOwnersAgreeWithAModel(t *testing.T) {
	now := time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	clock := ledger.Options{Now: func() time.Time { return now }}
	a := ledgertest.OpenAt(t, filepath.Join(memory(t), "outbox.db"), clock)
	b := ledgertest.OpenAt(t, a.Path(), clock)
	reg, key := registry(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		m := &market{files: [2]*ledger.Ledger{a, b}, now: &now}
		for range 3 {
			key++
			effect := rapid.SampledFrom([]entry.Effect{entry.Idempotent, entry.Queryable, entry.Opaque}).Draw(rt, "effect")
			id := ledgertest.Accept(t, a, reg, ledgertest.Request(string(effect), fmt.Sprint(key))).ID
			m.lent = append(m.lent, &lent{id: id, effect: effect, state: entry.Pending, until: now})
		}
		events := map[string]func(*rapid.T){
			"claim": m.claim, "renew": m.renew, "pass": m.pass, "lapse": m.lapse,
			"mark": m.mark, "succeed": m.succeed, "fail": m.fail, "undo": m.undo,
		}
		names := slices.Sorted(maps.Keys(events))
		for range 20 { // not drawn: short stories end before a lease does
			events[rapid.SampledFrom(names).Draw(rt, "event")](rt)
			m.agree(rt)
		}
	})
}

// memory is a directory that costs no fsync, where there is one: thousands of
// commits, and nothing here is about power.
func memory(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "lease")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (m *market) write(rt *rapid.T, owner int, fn func(*ledger.Tx) error) error {
	err := m.files[owner].Write(context.Background(), fn)
	if err != nil && !errors.Is(err, entry.ErrStale) {
		rt.Fatalf("write: %v", err)
	}
	return err
}

func (m *market) one(rt *rapid.T) *lent { return rapid.SampledFrom(m.lent).Draw(rt, "entry") }

// right draws one that was ever given; ok is false while there is none.
func (m *market) right(rt *rapid.T) (g right, e *lent, ok bool) {
	if len(m.given) == 0 {
		return g, nil, false
	}
	g = rapid.SampledFrom(m.given).Draw(rt, "right")
	i := slices.IndexFunc(m.lent, func(e *lent) bool { return e.id == g.held.ID })
	return g, m.lent[i], true
}

// sent draws one under which a request left.
func (m *market) sent(rt *rapid.T) (g right, e *lent, ok bool) {
	g, e, ok = m.right(rt)
	return g, e, ok && g.held.State == entry.Sending
}

// want demands that what happened was allowed exactly if the model says so.
func want(rt *rapid.T, what string, err error, allowed bool) {
	if (err == nil) != allowed {
		rt.Fatalf("%s answered %v, allowed is %v", what, err, allowed)
	}
}

func (m *market) claim(rt *rapid.T) {
	owner, e := rapid.IntRange(0, 1).Draw(rt, "owner"), m.one(rt)
	var h entry.Held
	err := m.write(rt, owner, func(tx *ledger.Tx) (err error) {
		h, err = take(tx, e.id, e.effect.Marked())
		return err
	})
	want(rt, "claim", err, e.state == entry.Pending && !e.until.After(*m.now))
	if err != nil {
		return
	}
	if h.Token <= m.high {
		rt.Fatalf("token %d follows %d", h.Token, m.high)
	}
	e.state, e.owner, e.token, e.last, e.until = entry.Claimed, owner, h.Token, h.Token, m.now.Add(ttl)
	if e.effect.Marked() {
		e.state = entry.Sending
	}
	e.tries++
	m.high = h.Token
	m.given = append(m.given, right{owner, h})
}

func (m *market) mark(rt *rapid.T) {
	g, e, ok := m.right(rt)
	if !ok {
		return
	}
	var h entry.Held
	err := m.write(rt, g.owner, func(tx *ledger.Tx) (err error) {
		h, err = entry.Hand(tx, g.held, tx.Now())
		return err
	})
	want(rt, "mark", err, e.state == entry.Claimed && e.token == g.held.Token)
	if err == nil {
		e.state = entry.Sending
		for i := range m.given {
			if m.given[i].held.Token == h.Token {
				m.given[i].held = h
			}
		}
	}
}

// renew: a process renews whatever it believes to have.
func (m *market) renew(rt *rapid.T) {
	owner := rapid.IntRange(0, 1).Draw(rt, "owner")
	var ids []int64
	for _, e := range m.lent {
		ids = append(ids, e.id)
	}
	var got map[int64]int64
	err := m.write(rt, owner, func(tx *ledger.Tx) (err error) {
		got, err = entry.Renew(tx, ids, tx.Now().Add(ttl))
		return err
	})
	want(rt, "renew", err, true)
	for _, e := range m.lent {
		if got[e.id] != e.token {
			rt.Fatalf("renewal says that entry %d has token %d, want %d", e.id, got[e.id], e.token)
		}
		if e.token != 0 && e.owner == owner {
			e.until = m.now.Add(ttl)
		}
	}
}

func (m *market) pass(rt *rapid.T) {
	*m.now = m.now.Add(rapid.SampledFrom([]time.Duration{time.Millisecond, ttl / 2, ttl, 2 * ttl}).Draw(rt, "by"))
}

// lapse: a process ends what the other one has let run out, and nothing of its own.
func (m *market) lapse(rt *rapid.T) {
	owner, e := rapid.IntRange(0, 1).Draw(rt, "owner"), m.one(rt)
	found := false
	err := m.write(rt, owner, func(tx *ledger.Tx) error {
		found = false
		due, err := entry.Probe(tx, string(e.effect), 10_000, true)
		if err != nil {
			return err
		}
		for _, d := range due {
			if d.ID == e.id && d.Token != 0 {
				found = true
				return d.Held().Lapse(tx)
			}
		}
		return nil
	})
	want(rt, "lapse", err, true)
	if should := e.token != 0 && e.owner != owner && !e.until.After(*m.now); found != should {
		rt.Fatalf("process %d sees a lease that is over: %v, want %v", owner, found, should)
	}
	if !found {
		return
	}
	if e.again {
		e.lapses++
	}
	sent := e.state == entry.Sending
	e.token, e.again, e.until = 0, true, *m.now
	switch {
	case !sent || e.effect == entry.Idempotent:
		e.state = entry.Pending
	case e.effect == entry.Queryable:
		e.state = entry.Unknown
	default:
		e.state, e.until = entry.Unknown, time.Time{}
	}
}

func (m *market) succeed(rt *rapid.T) {
	g, e, ok := m.sent(rt)
	if !ok {
		return
	}
	err := m.write(rt, g.owner, func(tx *ledger.Tx) error {
		return entry.Deliver(tx, g.held, receipt(rt, tx, e.id))
	})
	present := e.state == entry.Sending && e.token == g.held.Token
	late := (e.state == entry.Pending || e.state == entry.Unknown) && e.last == g.held.Token
	want(rt, "succeed", err, present || late)
	if err == nil {
		e.state, e.token, e.until, e.again = entry.Delivered, 0, time.Time{}, false
	}
}

// receipt is one that an audit finds nothing in.
func receipt(rt *rapid.T, tx *ledger.Tx, id int64) entry.Receipt {
	ops, err := intake.Load(tx, []int64{id})
	if err != nil {
		rt.Fatal(err)
	}
	sum := contract.ResultDigest(nil)
	return entry.Receipt{ResultSum: sum, Binding: ops[id].Bind(sum, "").Digest(), How: entry.Fresh}
}

func (m *market) fail(rt *rapid.T) {
	g, e, ok := m.sent(rt)
	if !ok {
		return
	}
	err := m.write(rt, g.owner, func(tx *ledger.Tx) error {
		_, err := g.held.Nothing(tx, entry.Nothing{Event: entry.Again, At: tx.Now(),
			Evidence: entry.Evidence{Kind: entry.Outcome, Phase: "sending", Class: "try_again", Code: "test"}})
		return err
	})
	want(rt, "fail", err, e.state == entry.Sending && e.token == g.held.Token)
	if err == nil {
		e.state, e.token, e.until, e.again = entry.Pending, 0, *m.now, false
		m.used(g)
	}
}

// used: a process settles what it has called once.
func (m *market) used(g right) {
	m.given = slices.DeleteFunc(m.given, func(o right) bool { return o.held.Token == g.held.Token })
}

func (m *market) undo(rt *rapid.T) {
	g, e, ok := m.right(rt)
	if !ok {
		return
	}
	err := m.write(rt, g.owner, g.held.Undo)
	want(rt, "undo", err, e.state == g.held.State && e.token == g.held.Token)
	if err == nil {
		e.state, e.token, e.until = entry.Pending, 0, *m.now
		e.tries--
		m.used(g)
	}
}

func (m *market) agree(rt *rapid.T) {
	rows := make([]entry.Due, len(m.lent))
	if err := m.files[0].Read(context.Background(), func(v *ledger.View) (err error) {
		for i, e := range m.lent {
			if rows[i], err = entry.Get(v, e.id); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		rt.Fatal(err)
	}
	for i, e := range m.lent {
		d := rows[i]
		got := fmt.Sprint(d.State, d.Token, d.Lapses, d.Suspect, d.Attempts, d.DueAt)
		model := fmt.Sprint(e.state, e.token, e.lapses, e.again, e.tries, e.until)
		if got != model {
			rt.Fatalf("entry %d of %s is %s, want %s", e.id, e.effect, got, model)
		}
		if d.Token != 0 && d.Owner != m.files[e.owner].Epoch() {
			rt.Fatalf("entry %d is process %d's, want %d", e.id, d.Owner, m.files[e.owner].Epoch())
		}
	}
}
