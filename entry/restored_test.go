package entry_test

import (
	"testing"
	"time"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// restored: whatever is not over, and whatever is dead, may have been sent since
// the copy was made.
func (x *machine) restored(tx *ledger.Tx) error {
	from, now, over := x.m.State, tx.Now(), tx.Now().Add(overTime)
	again := x.m.effect == entry.Idempotent
	live := from == entry.Pending || from == entry.Claimed || from == entry.Sending
	asked := from == entry.Unknown && !x.m.Due.IsZero()
	if x.m.effect != entry.Local && (live || asked || from == entry.Dead || from == entry.Waiting && !again) {
		x.stale = false
		due, to, reason := now, entry.Unknown, entry.ReasonRestored
		switch {
		case again && live:
			to, reason = entry.Pending, ""
			if from == entry.Pending {
				due = x.m.Due
			}
		case x.m.effect != entry.Queryable || from == entry.Waiting:
			due = time.Time{}
		}
		x.m.to(to, due, reason)
		x.m.Claim = 0
		if len(x.m.sends) == 0 {
			x.m.sends = []send{{0, now}}
		}
		x.m.Sent = now
		if over.After(x.m.Over) {
			x.m.Over = over
		}
		x.m.Round++
		x.m.round(now, 9000)
	}
	_, err := entry.Doubtful{ID: x.id, State: from}.Doubt(tx, now, over, 9*time.Second)
	return err
}

// TestOnlyWhatStoodInTheCopyIsDoubtful: what was accepted after it was put back is
// not, nor what has an end, what is held, or what is in the file itself.
func TestOnlyWhatStoodInTheCopyIsDoubtful(t *testing.T) {
	w := newWorld(t)
	var want []int64
	for _, effect := range []entry.Effect{entry.Idempotent, entry.Queryable, entry.Opaque, entry.Local} {
		id := w.accept(effect)
		if effect != entry.Local {
			want = append(want, id)
		}
	}
	w.pass(time.Second)
	restored := w.now()
	w.accept(entry.Opaque)
	list := func(after int64, n int) (got []int64) {
		w.must("list", func(tx *ledger.Tx) error {
			doubtful, err := entry.DoubtfulAfter(tx, after, restored, n)
			for _, d := range doubtful {
				got = append(got, d.ID)
			}
			return err
		})
		return got
	}
	if got := list(0, 10); len(got) != 3 || got[0] != want[0] || got[2] != want[2] {
		t.Errorf("doubtful are %v, want %v", got, want)
	}
	if got := list(want[0], 1); len(got) != 1 || got[0] != want[1] {
		t.Errorf("behind the first one is %v, want %v", got, want[1:2])
	}
	w.must("treat one", func(tx *ledger.Tx) error {
		_, err := entry.Doubtful{ID: want[0], State: entry.Pending}.Doubt(tx, restored, restored, 0)
		return err
	})
	if got := list(0, 10); len(got) != 2 {
		t.Errorf("after one was treated: %v, want the two others", got)
	}
}
