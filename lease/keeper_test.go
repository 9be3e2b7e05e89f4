package lease_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/lease"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

const ttl = 3 * time.Second

func registry(t testing.TB) *contract.Registry {
	return ledgertest.Registry(t, ledgertest.Tool(string(entry.Idempotent), entry.Idempotent),
		ledgertest.Tool(string(entry.Queryable), entry.Queryable), ledgertest.Tool(string(entry.Opaque), entry.Opaque))
}

func keeper(l *ledger.Ledger, lapsed *int, renewed *int) *lease.Keeper {
	return lease.NewKeeper(l, lease.Options{TTL: ttl, Heartbeat: ttl / 3,
		Lapsed:  func(n int) { *lapsed += n },
		Renewed: func(time.Duration, bool) { *renewed++ },
	}, zap.NewNop())
}

// claim claims a new operation of the class, or an old one that is due.
func claim(t testing.TB, l *ledger.Ledger, id int64, marked bool) (h entry.Held) {
	t.Helper()
	ledgertest.Write(t, l, func(tx *ledger.Tx) (err error) {
		h, err = take(tx, id, marked)
		return err
	})
	return h
}

func take(tx *ledger.Tx, id int64, marked bool) (h entry.Held, err error) {
	d, err := entry.Get(tx, id)
	if err != nil {
		return h, err
	}
	token, err := tx.Tokens(1)
	if err != nil {
		return h, err
	}
	return entry.Take(tx, d, entry.Lease{Token: token, Until: tx.Now().Add(ttl), Over: tx.Now().Add(time.Minute)}, marked)
}

func accept(t testing.TB, l *ledger.Ledger, effect entry.Effect, key string) int64 {
	t.Helper()
	return ledgertest.Accept(t, l, registry(t), ledgertest.Request(string(effect), key)).ID
}

// acceptMany accepts n operations, none of which is done on its own.
func acceptMany(t testing.TB, l *ledger.Ledger, effect entry.Effect, n int) (ids []int64) {
	t.Helper()
	reg, round := registry(t), time.Now().UnixNano()
	ledgertest.Write(t, l, func(tx *ledger.Tx) error {
		ids = nil
		for i := range n {
			p, err := intake.Prepare(reg, ledgertest.Request(string(effect), fmt.Sprint(round, "-", i)))
			if err != nil {
				return err
			}
			a, err := p.Accept(tx)
			if err != nil {
				return err
			}
			ids = append(ids, a.ID)
		}
		return nil
	})
	return ids
}

func get(t testing.TB, l *ledger.Ledger, id int64) (d entry.Due) {
	t.Helper()
	ledgertest.Read(t, l, func(v *ledger.View) (err error) {
		d, err = entry.Get(v, id)
		return err
	})
	return d
}

// run lets a keeper work until the test ends.
func run(t *testing.T, k *lease.Keeper) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("keeper ended with %v", err)
		}
	})
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestALeaseIsRenewedUntilItIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lapsed, renewed int
		l := ledgertest.Open(t)
		k := keeper(l, &lapsed, &renewed)
		run(t, k)
		h := claim(t, l, accept(t, l, entry.Opaque, "order-17"), true)
		k.Hold(h, func(err error) { t.Errorf("cancelled with %v", err) })
		pass(100 * time.Second)
		if left := time.Until(get(t, l, h.ID).DueAt); left < ttl/2 {
			t.Errorf("lease lasts %v more, want renewals with a margin", left)
		}
		if renewed < 95 {
			t.Errorf("renewed %d times in 100 s, want each second", renewed)
		}
		k.Drop(h)
		pass(ttl + time.Second)
		if d := get(t, l, h.ID); d.DueAt.After(time.Now()) || d.State != entry.Sending {
			t.Errorf("dropped lease is %s until %v, want it left alone", d.State, d.DueAt)
		}
		pass(10 * time.Minute) // nobody has it: swept
		if d := get(t, l, h.ID); d.State != entry.Unknown || lapsed != 1 {
			t.Errorf("entry is %s after %d lapses, want unknown after 1", d.State, lapsed)
		}
	})
}

func TestAClaimWithoutAHolderIsEndedAsSoonAsItsLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lapsed, renewed int
		l := ledgertest.Open(t)
		k := keeper(l, &lapsed, &renewed)
		run(t, k)
		h := claim(t, l, accept(t, l, entry.Queryable, "order-17"), false)
		k.Sweep() // the claim was answered with an error
		pass(time.Second)
		if d := get(t, l, h.ID); d.State != entry.Claimed {
			t.Errorf("entry is %s, want its lease to last", d.State)
		}
		pass(ttl + time.Second)
		if d := get(t, l, h.ID); d.State != entry.Pending || lapsed != 1 {
			t.Errorf("entry is %s after %d lapses, want pending after 1", d.State, lapsed)
		}
	})
}

func TestOnlyAnotherTokenCancelsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lapsed, renewed int
		l := ledgertest.Open(t)
		other := ledgertest.OpenAt(t, l.Path())
		k := keeper(l, &lapsed, &renewed)
		run(t, k)
		var lost error
		h := claim(t, l, accept(t, l, entry.Idempotent, "order-17"), true)
		k.Hold(h, func(err error) { lost = err })

		ledgertest.Write(t, other, h.Lapse) // by a process that thought it dead
		pass(2 * time.Second)
		if lost != nil {
			t.Errorf("cancelled with %v while nobody has the entry", lost)
		}
		g := claim(t, other, h.ID, true)
		pass(2 * time.Second)
		if !errors.Is(lost, lease.ErrLost) {
			t.Errorf("cancelled with %v, want ErrLost", lost)
		}
		if d := get(t, l, h.ID); d.Token != g.Token || d.DueAt.After(time.Now().Add(ttl)) {
			t.Errorf("the other's lease was touched: %+v", d)
		}
	})
}

func TestALaterClaimOfTheSameProcessCancelsTheOlder(t *testing.T) {
	var lapsed, renewed int
	l := ledgertest.Open(t)
	k := keeper(l, &lapsed, &renewed)
	var lost error
	h := claim(t, l, accept(t, l, entry.Idempotent, "order-17"), true)
	k.Hold(h, func(err error) { lost = err })
	ledgertest.Write(t, l, h.Lapse)
	g := claim(t, l, h.ID, true)
	k.Hold(g, func(err error) { t.Errorf("the later claim was cancelled with %v", err) })
	if !errors.Is(lost, lease.ErrLost) {
		t.Errorf("cancelled with %v, want ErrLost", lost)
	}
	k.Drop(h) // the older one ends, and drops nothing of the later
	ledgertest.Write(t, l, g.Undo)
	k.Drop(g)
}

func TestTakingOverEndsEveryLeaseOfTheDeadByItsClass(t *testing.T) {
	path := ledgertest.Open(t).Path()
	dead := ledgertest.OpenAt(t, path)
	want, claims := map[int64]entry.State{}, map[int64]bool{}
	for _, c := range []struct {
		effect entry.Effect
		marked bool
		state  entry.State
	}{
		{entry.Idempotent, true, entry.Pending},
		{entry.Queryable, false, entry.Pending},
		{entry.Queryable, true, entry.Unknown},
		{entry.Opaque, false, entry.Pending},
		{entry.Opaque, true, entry.Unknown},
	} {
		for _, id := range acceptMany(t, dead, c.effect, 55) { // more than one batch in all
			want[id] = c.state
			claims[id] = c.marked
		}
	}
	ledgertest.Write(t, dead, func(tx *ledger.Tx) error {
		for id, marked := range claims {
			if _, err := take(tx, id, marked); err != nil {
				return err
			}
		}
		return nil
	})
	l := ledgertest.OpenAt(t, path)
	mine := claim(t, l, accept(t, l, entry.Opaque, "mine"), true)
	n, err := lease.TakeOver(t.Context(), l)
	must(t, err)
	if n != len(want) {
		t.Errorf("%d leases ended, want %d", n, len(want))
	}
	rows := map[int64]entry.Due{}
	ledgertest.Read(t, l, func(v *ledger.View) (err error) {
		for id := range want {
			if rows[id], err = entry.Get(v, id); err != nil {
				return err
			}
		}
		return nil
	})
	for id, state := range want {
		d := rows[id]
		if d.State != state || d.Token != 0 || d.Lapses != 0 || !d.Suspect {
			t.Errorf("entry %d is %+v, want %s and a suspect", id, d, state)
		}
		if held := d.DueAt.IsZero(); held != (state == entry.Unknown && d.Tool == string(entry.Opaque)) {
			t.Errorf("entry %d of %s: held is %v", id, d.Tool, held)
		}
	}
	if d := get(t, l, mine.ID); d.Token != mine.Token {
		t.Error("a lease of this process was ended")
	}
}
