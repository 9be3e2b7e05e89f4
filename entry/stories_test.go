package entry_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// end settles one attempt as nothing done, given up with a reason or not.
func (w *world) nothing(h entry.Held, giveUp string) (to entry.State) {
	w.t.Helper()
	w.must("settle", func(tx *ledger.Tx) (err error) {
		to, err = h.Nothing(tx, entry.Nothing{Event: entry.Again, At: tx.Now(), GiveUp: giveUp, Evidence: evidence("connect")})
		return err
	})
	return to
}

func (w *world) maybe(h entry.Held, to entry.State) {
	w.t.Helper()
	w.must("settle", func(tx *ledger.Tx) error {
		_, err := h.Doubt(tx, entry.Doubt{Event: entry.Maybe, To: to, At: tx.Now(), Reason: reasonFor(to), Evidence: evidence("timeout")})
		return err
	})
}

func reasonFor(to entry.State) string {
	if to == entry.Unknown {
		return "unproven"
	}
	return ""
}

func deliver(h entry.Held) func(*ledger.Tx) error {
	return func(tx *ledger.Tx) error { return entry.Deliver(tx, h, entry.Receipt{How: entry.Fresh}) }
}

func TestTimedOutThenRefusedConnectionsIsUnknownNotDead(t *testing.T) {
	w := newWorld(t)
	id := w.accept(entry.Idempotent)
	w.maybe(w.claim(id, true), entry.Pending) // it took effect; the answer was lost
	var to entry.State
	for attempt := 2; attempt <= 12; attempt++ {
		w.pass(time.Minute)
		giveUp := ""
		if attempt == 12 {
			giveUp = "attempts_exhausted"
		}
		to = w.nothing(w.claim(id, true), giveUp)
	}
	got := w.row(id)
	if to != entry.Unknown || got.State != entry.Unknown || !got.Due.IsZero() || got.Reason != "attempts_exhausted" {
		t.Errorf("after a timeout and 11 refused connections: got %s due %v because of %q, want unknown, held, attempts_exhausted",
			got.State, got.Due, got.Reason)
	}
	if got.By == 0 || got.Attempts != 12 || got.Failures != 12 {
		t.Errorf("got %+v, want the first send still unproven, 12 attempts, 12 failures", got)
	}
}

func TestTwelveRefusedConnectionsAreDead(t *testing.T) {
	w := newWorld(t)
	id := w.accept(entry.Idempotent)
	for range 11 {
		w.nothing(w.claim(id, true), "")
	}
	if to := w.nothing(w.claim(id, true), "attempts_exhausted"); to != entry.Dead {
		t.Errorf("nothing ever left: got %s, want dead", to)
	}
}

func TestLateHolderCannotSettle(t *testing.T) {
	w := newWorld(t)
	id := w.accept(entry.Idempotent)
	late := w.claim(id, true)
	w.pass(leaseTime)
	w.must("lapse", late.Lapse)
	holder := w.claim(id, true)
	w.refused("nothing", id, func(tx *ledger.Tx) error {
		_, err := late.Nothing(tx, entry.Nothing{Event: entry.Again, At: tx.Now(), Evidence: evidence("late")})
		return err
	})
	w.refused("doubt", id, func(tx *ledger.Tx) error {
		_, err := late.Doubt(tx, entry.Doubt{Event: entry.Maybe, To: entry.Pending, At: tx.Now(), Evidence: evidence("late")})
		return err
	})
	w.refused("give up", id, func(tx *ledger.Tx) error {
		_, err := late.GiveUp(tx, "too_old", true, evidence("late"))
		return err
	})
	w.refused("undo", id, late.Undo)
	w.refused("lapse", id, late.Lapse)
	w.refused("late proof", id, func(tx *ledger.Tx) error {
		_, err := late.LateNothing(tx, tx.Now(), "", evidence("late"))
		return err
	})
	w.refused("success", id, deliver(late))
	w.must("the holder's success", deliver(holder))
	w.refused("success again", id, deliver(holder))
}

func TestLateSuccessOfTheLastClaimIsBelieved(t *testing.T) {
	w := newWorld(t)
	id := w.accept(entry.Queryable)
	h := w.mark(w.claim(id, false))
	w.pass(leaseTime)
	w.must("lapse", h.Lapse)
	asked := w.ask(id)
	w.must("late success", deliver(h))
	w.refused("the answer to the question", id, deliver(asked))
	if got := w.row(id); got.State != entry.Delivered || got.Receipts != 1 {
		t.Errorf("got %s with %d receipts, want delivered with one", got.State, got.Receipts)
	}
}

func TestOwnProofVoidsOnlyItsOwnSend(t *testing.T) {
	w := newWorld(t)
	id := w.accept(entry.Idempotent)
	first := w.claim(id, true)
	w.maybe(first, entry.Pending)
	since := w.row(id).Since
	w.pass(time.Second)
	second := w.claim(id, true)
	if to := w.nothing(second, "rejected"); to != entry.Unknown {
		t.Errorf("rejected once, unproven once: got %s, want unknown", to)
	}
	if got := w.row(id); got.By != first.Token || !got.Since.Equal(since) {
		t.Errorf("unproven by %d since %v, want the first send %d since %v", got.By, got.Since, first.Token, since)
	}
}

// What is still running downstream may still take effect, whatever became of
// the attempts after it.
func TestReviewWaitsForTheAttemptThatMayStillRun(t *testing.T) {
	w := newWorld(t)
	id := w.accept(entry.Idempotent)
	w.maybe(w.claim(id, true), entry.Pending)
	w.pass(time.Second)
	w.nothing(w.claim(id, true), "attempts_exhausted")
	resolve := func(tx *ledger.Tx) error { return entry.ResolveNotApplied(tx, id, tx.Now(), 0) }
	before := w.row(id)
	if err := w.write(resolve); !errors.Is(err, entry.ErrRunning) {
		t.Fatalf("resolve while the first attempt may run: got %v, want %v", err, entry.ErrRunning)
	}
	if after := w.row(id); after != before {
		t.Fatalf("resolve while the first attempt may run changed the row: got %+v, want %+v", after, before)
	}
	w.pass(overTime)
	w.must("resolve after it", resolve)
}

func TestReviewMakesAnswerInFlightLate(t *testing.T) {
	w := newWorld(t)
	id := w.accept(entry.Queryable)
	h := w.mark(w.claim(id, false))
	w.maybe(h, entry.Unknown)
	asked := w.ask(id)
	w.pass(overTime)
	w.must("review", func(tx *ledger.Tx) error { return entry.ResolveNotApplied(tx, id, tx.Now(), 0) })
	w.refused("answer in flight", id, deliver(asked))
	w.refused("success of the attempt before the review", id, deliver(h))
	w.refused("late proof", id, func(tx *ledger.Tx) error {
		_, err := h.LateNothing(tx, tx.Now(), "", evidence("late"))
		return err
	})
	if got := w.row(id); got.State != entry.Pending || got.Round != 2 {
		t.Errorf("got %s in round %d, want pending in round 2", got.State, got.Round)
	}
}

func TestPoisonIsCountedOnlyAsASuspect(t *testing.T) {
	w := newWorld(t)
	id := w.accept(entry.Queryable)
	for crash, want := range []int{0, 1, 2} {
		h := w.mark(w.claim(id, false))
		w.pass(leaseTime)
		w.must("lapse", h.Lapse)
		asked := w.ask(id)
		w.must("not applied", func(tx *ledger.Tx) error {
			_, err := asked.NotApplied(tx, tx.Now(), "", evidence("query"))
			return err
		})
		if got := w.row(id); got.Lapses != want || !got.Suspect {
			t.Errorf("after crash %d: got %d lapses, suspect %v, want %d and a suspect", crash+1, got.Lapses, got.Suspect, want)
		}
	}
	w.nothing(w.mark(w.claim(id, false)), "")
	if w.row(id).Suspect {
		t.Error("an attempt ended without a lapse: still a suspect")
	}
}

func TestDrainCountsForNobody(t *testing.T) {
	w := newWorld(t)
	id := w.accept(entry.Idempotent)
	before := w.row(id)
	w.must("undo", w.claim(id, true).Undo)
	got := w.row(id)
	if got.State != entry.Pending || got.Attempts != 0 || got.Failures != 0 || got.By != 0 || got.Evidence != 0 || !got.Due.Equal(before.Due) {
		t.Errorf("after a drain: got %+v, want it as before %+v", got, before)
	}
}

func TestWhatTheTableDoesNotHaveIsRefused(t *testing.T) {
	w := newWorld(t)
	id := w.accept(entry.Queryable)
	h := w.claim(id, false)
	for what, fn := range map[string]func(*ledger.Tx) error{
		"success before a mark": deliver(h),
		"rejected before a mark": func(tx *ledger.Tx) error {
			_, err := h.Nothing(tx, entry.Nothing{Event: entry.Reject, GiveUp: "rejected", Evidence: evidence("rejected")})
			return err
		},
		"rejected and tried again": func(tx *ledger.Tx) error {
			h := h
			h.State = entry.Sending
			_, err := h.Nothing(tx, entry.Nothing{Event: entry.Reject, At: tx.Now(), Evidence: evidence("rejected")})
			return err
		},
		"doubt that ends dead": func(tx *ledger.Tx) error {
			h := h
			h.State = entry.Sending
			_, err := h.Doubt(tx, entry.Doubt{Event: entry.Maybe, To: entry.Dead, Evidence: evidence("maybe")})
			return err
		},
		"discard of a delivered one": func(tx *ledger.Tx) error { return entry.Drop(tx, entry.Discard, id, entry.Delivered, "") },
	} {
		before := w.row(id)
		err := w.write(fn)
		if err == nil || errors.Is(err, entry.ErrStale) || !strings.Contains(err.Error(), "no transition") {
			t.Errorf("%s: got %v, want no transition", what, err)
		}
		if got := w.row(id); got != before {
			t.Errorf("%s changed the row: got %+v, want %+v", what, got, before)
		}
	}
}

// The file refuses what the code would never do: it can be edited by hand.
func TestTheFileRefusesImpossibleRows(t *testing.T) {
	w := newWorld(t)
	pending := w.accept(entry.Opaque)
	sending := w.accept(entry.Opaque)
	w.mark(w.claim(sending, false))
	for set, id := range map[string]int64{
		`state = 'dead', due_at = NULL, owner = NULL, token = NULL, reason = 'rejected'`: sending,
		`state = 'dead', due_at = NULL`:                  pending,
		`state = 'unknown', due_at = NULL, reason = 'x'`: pending,
		`state = 'unknown', owner = NULL, token = NULL`:  sending,
		`state = 'waiting', owner = NULL, token = NULL`:  sending,
		`state = 'sending'`:                              pending,
		`state = 'claimed'`:                              pending,
		`state = 'delivered'`:                            sending,
		`owner = 1`:                                      pending,
		`due_at = NULL`:                                  pending,
		`claim_token = claim_token + 1`:                  sending,
		`unproven_since = NULL, unproven_by = NULL`:      sending,
		`unproven_since = 1`:                             pending,
		`attempts = -1`:                                  pending,
		`state = 'asked'`:                                pending,
		`due_at = 'tomorrow'`:                            pending,
		`round = 0`:                                      pending,
		`owner = NULL, token = NULL`:                     sending,
		`state = 'discarded'`:                            pending,
		`operation_id = operation_id + 1000`:             pending,
		`suspect = 2`:                                    pending,
		`state = 'unknown', due_at = NULL, reason = 'x', unproven_since = 1, unproven_by = NULL`: pending,
	} {
		err := w.write(func(tx *ledger.Tx) error {
			_, err := tx.Exec(`UPDATE outbox_entry SET `+set+` WHERE operation_id = ?`, id)
			return err
		})
		if err == nil {
			t.Errorf("SET %s: the file took it", set)
		}
	}
}

// Ids are never given twice: a late result must not hit another intent.
func TestIdsNeverComeBack(t *testing.T) {
	w := newWorld(t)
	first := w.accept(entry.Opaque)
	w.must("purge", func(tx *ledger.Tx) error {
		if _, err := tx.Exec(`DELETE FROM outbox_entry WHERE operation_id = ?`, first); err != nil {
			return err
		}
		_, err := tx.Exec(`DELETE FROM outbox_operation WHERE id = ?`, first)
		return err
	})
	if second := w.accept(entry.Opaque); second <= first {
		t.Errorf("id %d after a purge of %d", second, first)
	}
	err := w.l.Read(t.Context(), func(v *ledger.View) error {
		_, err := entry.Get(v, first)
		return err
	})
	if !errors.Is(err, entry.ErrNotFound) {
		t.Errorf("get of the purged one: got %v, want %v", err, entry.ErrNotFound)
	}
}

// Instants are integers in UTC: the zone of the process is of no matter.
func TestDueOrderIsRealOrder(t *testing.T) {
	w := newWorld(t)
	base := w.now()
	var want []int64
	for _, zone := range []string{"Asia/Kathmandu", "America/St_Johns", "UTC"} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Skipf("no zone data: %v", err)
		}
		for _, ms := range []int{0, 500, 501, 900} {
			at := base.Add(time.Duration(len(want)/4*1000+ms) * time.Millisecond).In(loc)
			w.must("accept", func(tx *ledger.Tx) error {
				id, err := w.operation(tx, entry.Local)
				if err != nil {
					return err
				}
				want = append(want, id)
				return entry.Open(tx, id, "ordered", entry.Begin{Due: at})
			})
		}
	}
	w.pass(time.Hour)
	w.must("probe", func(tx *ledger.Tx) error {
		rows, err := entry.Probe(tx, "ordered", 100, true)
		for i, d := range rows {
			if d.ID != want[i] {
				t.Errorf("place %d: got entry %d due %v, want entry %d", i, d.ID, d.DueAt, want[i])
			}
		}
		if len(rows) != len(want) {
			t.Errorf("got %d rows, want %d", len(rows), len(want))
		}
		return err
	})
}

func TestRenewTellsWhoHasWhat(t *testing.T) {
	w := newWorld(t)
	mine, lost, free := w.accept(entry.Opaque), w.accept(entry.Opaque), w.accept(entry.Opaque)
	a, b := w.claim(mine, false), w.claim(lost, false)
	w.must("another process takes one", func(tx *ledger.Tx) error {
		_, err := tx.Exec(`UPDATE outbox_entry SET owner = owner + 1, token = token + 9, claim_token = token + 9 WHERE operation_id = ?`, lost)
		return err
	})
	w.pass(time.Second)
	before := w.row(lost)
	var tokens map[int64]int64
	until := w.now().Add(leaseTime)
	w.must("renew", func(tx *ledger.Tx) (err error) {
		tokens, err = entry.Renew(tx, []int64{mine, lost, free}, until)
		return err
	})
	if tokens[mine] != a.Token || tokens[lost] == b.Token || len(tokens) != 2 {
		t.Errorf("got tokens %v, want %d for %d, another for %d, none for %d", tokens, a.Token, mine, lost, free)
	}
	if got := w.row(mine); !got.Due.Equal(until) {
		t.Errorf("own lease ends %v, want %v", got.Due, until)
	}
	if got := w.row(lost); got != before {
		t.Errorf("another's lease changed: got %+v, want %+v", got, before)
	}
	if got := w.row(free); got.Token != 0 {
		t.Errorf("a free entry was leased: %+v", got)
	}
}

func TestProbeLeavesOutWhatMustNotStart(t *testing.T) {
	w := newWorld(t)
	free := w.accept(entry.Idempotent)
	suspect := w.accept(entry.Idempotent)
	h := w.claim(suspect, true)
	w.must("lapse", h.Lapse)
	own := w.accept(entry.Idempotent)
	w.claim(own, true)
	w.pass(time.Hour)
	probe := func(suspects bool) (ids []int64) {
		w.must("probe", func(tx *ledger.Tx) error {
			ids = nil
			rows, err := entry.Probe(tx, tool(entry.Idempotent), 10, suspects)
			for _, d := range rows {
				ids = append(ids, d.ID)
			}
			return err
		})
		return ids
	}
	if got := probe(false); len(got) != 1 || got[0] != free {
		t.Errorf("without suspects: got %v, want [%d]", got, free)
	}
	if got := probe(true); len(got) != 2 {
		t.Errorf("with suspects: got %v, want %d and %d", got, free, suspect)
	}
}

func TestWhatWasRecordedIsFoundByItsTokenAlone(t *testing.T) {
	w := newWorld(t)
	recorded := func(h entry.Held) (yes bool) {
		t.Helper()
		err := w.l.Read(t.Context(), func(v *ledger.View) (err error) {
			yes, err = entry.Recorded(v, h)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return yes
	}
	first := w.claim(w.accept(entry.Idempotent), true)
	w.must("lapse", func(tx *ledger.Tx) error { return first.Lapse(tx) })
	w.must("late evidence", func(tx *ledger.Tx) error {
		late := evidence("x")
		late.Kind = entry.Late
		return entry.Record(tx, first, late)
	})
	if recorded(first) {
		t.Error("a lapse and what came late count as the attempt's own")
	}
	second := w.claim(first.ID, true)
	w.must("deliver", deliver(second))
	if !recorded(second) || recorded(first) {
		t.Errorf("recorded: got %v %v, want the second attempt's only", recorded(first), recorded(second))
	}
	third := w.claim(w.accept(entry.Idempotent), true)
	w.nothing(third, "")
	if !recorded(third) {
		t.Error("an outcome is not found")
	}
}
