package entry_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// reached counts the transitions that the models made.
type reached map[edge]int

type edge struct {
	from  entry.State
	event entry.Event
	to    entry.State
}

// machine drives one entry and its model by the same events.
type machine struct {
	*rapid.T
	w       *world
	id      int64
	m       model
	held    []entry.Held // every right that was ever given, the last one last
	tokens  []int64
	reached reached
	event   entry.Event // what the step in hand is
	stale   bool        // what the model expects of it
	busy    bool        // stale since the last attempt may still run
}

// TestTheTableOfStates drives entries by random events, stale tokens, late
// answers, reviews, questions, lapses and limits among them, and compares every
// column with a model after each step. Every transition must have been made.
func TestTheTableOfStates(t *testing.T) {
	w := newWorld(t)
	seen := reached{}
	for range 100 { // the rarest need some more
		rapid.Check(t, func(rt *rapid.T) { drive(rt, w, seen) })
		if t.Failed() || len(seen.missing()) == 0 {
			break
		}
	}
	for _, e := range seen.missing() {
		t.Errorf("no model made %q from %q to %q", e.event, e.from, e.to)
	}
}

func drive(t *rapid.T, w *world, seen reached) {
	x := &machine{T: t, w: w, reached: seen}
	x.accept()
	other := w.accept(x.m.effect)
	bystander := w.row(other)
	t.Repeat(map[string]func(*rapid.T){"step": func(*rapid.T) { x.step() }})
	if got := w.row(other); got != bystander {
		t.Fatalf("another entry changed: got %+v, want %+v", got, bystander)
	}
}

func (r reached) missing() (none []edge) {
	for _, tr := range entry.Transitions {
		for _, to := range tr.To {
			if e := (edge{tr.From, tr.Event, to}); r[e] == 0 {
				none = append(none, e)
			}
		}
	}
	return none
}

// accept begins with an operation of a random class.
func (x *machine) accept() {
	effect := pick(x, "effect", entry.Idempotent, entry.Queryable, entry.Queryable, entry.Local, entry.Opaque)
	begin := entry.Begin{Due: x.soon(), Waiting: x.oneIn(4, "waiting"), Excused: 7 * time.Second}
	if begin.Waiting && x.oneIn(2, "no deadline") {
		begin.Due = time.Time{}
	}
	now := x.w.now()
	x.held = nil
	x.m = model{effect: effect, row: row{State: entry.Pending, Due: begin.Due, Round: 1, RoundAt: begin.Due, Excused: 7000, Changed: now}}
	if begin.Waiting {
		x.m.State, x.m.RoundAt = entry.Waiting, now
	}
	err := x.w.write(func(tx *ledger.Tx) (err error) {
		if x.id, err = x.w.operation(tx, effect); err != nil {
			return err
		}
		return entry.Open(tx, x.id, tool(effect), begin)
	})
	if err != nil {
		x.Fatalf("accept: %v", err)
	}
	x.made("", entry.Accept)
	x.compare()
}

// soon is now or a little later, so that some claims come too early.
func (x *machine) soon() time.Time {
	return x.w.now().Add(time.Duration(pick(x, "soon", 0, 0, 0, 1, 900, 5000)) * time.Millisecond)
}

// pick is uniform, as rapid's own choices are not: they favour what comes first.
func pick[E any](x *machine, label string, from ...E) E {
	n := uint64(0)
	for _, bit := range rapid.SliceOfN(rapid.Bool(), 10, 10).Draw(x.T, label) {
		n <<= 1
		if bit {
			n |= 1
		}
	}
	return from[n%uint64(len(from))]
}

func (x *machine) oneIn(n int, label string) bool {
	choices := make([]bool, n)
	choices[n-1] = true
	return pick(x, label, choices...)
}

func (x *machine) step() {
	if x.m.State == entry.Delivered || x.m.State == entry.Discarded {
		if x.oneIn(2, "next") {
			x.accept()
		}
	}
	x.w.pass(time.Duration(pick(x, "pass", 0, 1, 20, 1000, 12000)) * time.Millisecond)
	from, before := x.m.State, x.m.columns()
	apply := x.choose()
	x.stale, x.busy = true, false
	err := x.w.write(apply)
	want := entry.ErrStale
	if x.busy {
		want = entry.ErrRunning
	}
	switch {
	case x.stale && !errors.Is(err, want):
		x.Fatalf("%s in %s: got %v, want %v", x.event, from, err, want)
	case !x.stale && err != nil:
		x.Fatalf("%s in %s: %v", x.event, from, err)
	case x.stale:
		if got := x.m.columns(); got != before {
			x.Fatalf("the model changed on a stale %s", x.event)
		}
	default:
		x.m.Changed = x.w.now()
		x.made(from, x.event)
	}
	x.compare()
}

// choose takes one of the events that the table has for this state, or any.
func (x *machine) choose() func(*ledger.Tx) error {
	events := x.events()
	names := slices.Sorted(maps.Keys(events))
	ending := x.oneIn(5, "ending")
	legal := slices.DeleteFunc(slices.Clone(names), func(e entry.Event) bool {
		return !slices.ContainsFunc(entry.Transitions, func(t entry.Transition) bool {
			ends := slices.ContainsFunc(t.To, func(s entry.State) bool { return s == entry.Delivered || s == entry.Discarded })
			return t.From == x.m.State && t.Event == e && (ending || !ends)
		})
	})
	if len(legal) > 0 && !x.oneIn(6, "any event") {
		names = legal
	}
	var weighed []entry.Event
	for _, e := range names {
		weighed = append(weighed, slices.Repeat([]entry.Event{e}, weight(e))...)
	}
	x.event = pick(x, "event", weighed...)
	return events[x.event]
}

// weight favours what leads on: an entry that is never sent meets little.
func weight(e entry.Event) int {
	switch e {
	case entry.Claim, entry.Mark:
		return 12
	case entry.Maybe, entry.LeaseOver, entry.Ask, entry.Reconcile, entry.ReviewRetry:
		return 6
	case entry.Limit, entry.Cancel, entry.Drain, entry.Discard:
		return 1
	}
	return 2
}

// made counts a transition and checks that the table has it.
func (x *machine) made(from entry.State, event entry.Event) {
	if !entry.Allowed(from, event, x.m.State) {
		x.Fatalf("%s led from %q to %q, which the table does not have", event, from, x.m.State)
	}
	x.reached[edge{from, event, x.m.State}]++
}

// compare holds the file against the model, and both against the promises.
func (x *machine) compare() {
	got := x.w.row(x.id)
	if diff := cmp.Diff(x.m.columns(), got); diff != "" {
		x.Fatalf("after %s (-model +file):\n%s", x.event, diff)
	}
	if got.State == entry.Dead && len(x.m.sends) > 0 {
		x.Fatalf("dead with %d unproven sends", len(x.m.sends))
	}
	if (got.State == entry.Delivered) != (got.Receipts == 1) || got.Receipts > 1 {
		x.Fatalf("%s with %d receipts", got.State, got.Receipts)
	}
	if !slices.IsSorted(x.tokens) || len(slices.Compact(slices.Clone(x.tokens))) != len(x.tokens) {
		x.Fatalf("tokens do not rise: %v", x.tokens)
	}
}

// right is the one in hand or, now and then, one that has been lost.
func (x *machine) right() entry.Held {
	if len(x.held) == 0 {
		return entry.Held{ID: x.id, Token: 1, Attempt: 1, Round: 1, State: entry.Sending}
	}
	if x.oneIn(5, "lost") {
		return pick(x, "right", x.held...)
	}
	return x.held[len(x.held)-1]
}

// lease takes the next token; the model expects the same one.
func (x *machine) lease(tx *ledger.Tx) entry.Lease {
	l, err := x.w.lease(tx)
	if err != nil {
		x.Fatalf("token: %v", err)
	}
	return l
}

func (x *machine) due(tx *ledger.Tx) entry.Due {
	d, err := entry.Get(tx, x.id)
	if err != nil {
		x.Fatalf("get: %v", err)
	}
	return d
}

// granted: the model gives the right that was asked for.
func (x *machine) granted(tx *ledger.Tx, l entry.Lease) {
	x.stale = false
	x.m.Owner, x.m.Token, x.m.Due = tx.Epoch(), l.Token, l.Until
	x.tokens = append(x.tokens, l.Token)
}
