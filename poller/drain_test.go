package poller_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/poller"
)

func TestADrainWaitsForWhatIsInFlightAndRecordsIt(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: takes(2 * time.Second)}
		w := open(t, options{concurrency: 20}, tool("slow", entry.Idempotent, o, func(c *config.Tool) { c.Concurrency = 20 })).run()
		ids := w.acceptMany("slow", 20)
		pass(time.Second)
		equal(t, "calls", len(o.called()), 20)
		late := w.accept("slow", "late")
		began := time.Now()
		w.stop()
		equal(t, "drained in", time.Since(began).Round(100*time.Millisecond), time.Second)
		for _, id := range ids {
			w.expect(id, entry.Delivered, "")
		}
		w.expect(late, entry.Pending, "")
		equal(t, "cut off", w.poller.CutOff(), 0)

		n := w.next(tool("slow", entry.Idempotent, o)).run()
		pass(3 * time.Second)
		n.expect(late, entry.Delivered, "")
		equal(t, "calls after the restart", len(o.called()), 21)
	})
}

// The claim is committed, and the drain begins before the mark is.
func TestADrainUndoesWhatWasNotHandedOverWithoutCounting(t *testing.T) {
	for _, effect := range []entry.Effect{entry.Queryable, entry.Opaque} {
		story(t, func(t *testing.T) {
			o := &outside{ask: neverAsked(t)}
			var c *sql.Conn
			var commits atomic.Int32
			lock := func(int, time.Duration) {
				if commits.Add(1) == 3 { // tools, accept, claim
					exec(t, c, `BEGIN IMMEDIATE`)
				}
			}
			w := open(t, options{ledger: ledger.Options{Observe: lock}}, tool("refund", effect, o)).run()
			c = foreign(t, w.path)
			synctest.Wait()
			id := w.accept("refund", "order-17")
			pass(time.Second)
			w.expect(id, entry.Claimed, "")
			w.cancel()
			w.cut(poller.ErrCutOff)
			synctest.Wait()
			exec(t, c, `ROLLBACK`)
			w.stop()
			r := w.expect(id, entry.Pending, "")
			equal(t, "attempts, failures, calls", [3]int{r.Attempts, r.Failures, len(o.called())}, [3]int{0, 0, 0})
			if !r.UnprovenSince.IsZero() {
				t.Error("something is unproven although nothing was sent")
			}
			equal(t, "cut off", w.poller.CutOff(), 0)
		})
	}
}

func TestTheDrainLimitCutsOffAndCountsForNobody(t *testing.T) {
	hangs := func(ctx context.Context, _ handler.Call, _ int) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for effect, want := range map[entry.Effect]row{
		entry.Idempotent: {Due: entry.Due{State: entry.Pending}},
		entry.Queryable:  {Due: entry.Due{State: entry.Unknown}, Reason: "unproven"},
		entry.Opaque:     {Due: entry.Due{State: entry.Unknown}, Reason: "unproven"},
	} {
		t.Run(string(effect), func(t *testing.T) {
			story(t, func(t *testing.T) {
				o := &outside{do: hangs, ask: unanswered}
				w := open(t, options{}, tool("slow", effect, o, patient)).run()
				id := w.accept("slow", "order-17")
				pass(time.Second)
				w.cancel()
				pass(8 * time.Second)
				w.cut(poller.ErrCutOff)
				w.stop()

				r := w.expect(id, want.State, want.Reason)
				equal(t, "attempts, failures, lapses, queries", [4]int{r.Attempts, r.Failures, r.Lapses, r.Queries}, [4]int{1, 0, 0, 0})
				equal(t, "held", r.DueAt.IsZero(), effect == entry.Opaque)
				equal(t, "cut off", w.poller.CutOff(), 1)
				if r.UnprovenSince.IsZero() {
					t.Error("what was cut off counts as proven")
				}
			})
		})
	}
}

// Nothing has left when the handler says so, also when it was cut off.
func TestCutOffBeforeAnythingWasSentIsUndone(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: func(ctx context.Context, _ handler.Call, _ int) ([]byte, error) {
			<-ctx.Done() // in the middle of a TLS handshake, say
			return nil, handler.Unsent(ctx.Err())
		}}
		w := open(t, options{}, tool("bell", entry.Opaque, o, patient)).run()
		id := w.accept("bell", "order-17")
		pass(time.Second)
		w.cancel()
		w.cut(poller.ErrCutOff)
		w.stop()
		r := w.expect(id, entry.Pending, "")
		equal(t, "attempts, failures, cut off", [3]int{r.Attempts, r.Failures, w.poller.CutOff()}, [3]int{0, 0, 0})
	})
}

func TestAnOutcomeSurvivesShutdownWhileTheDatabaseIsLocked(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: takes(2 * time.Second)}
		w := open(t, options{ttl: time.Second}, tool("bell", entry.Opaque, o)).run()
		id := w.accept("bell", "order-17")
		pass(time.Second)
		c := foreign(t, w.path)
		exec(t, c, `BEGIN IMMEDIATE`)
		w.cancel()
		pass(20 * time.Second)
		w.cut(poller.ErrCutOff) // the drain limit; the outcome is known and only waits
		pass(4 * time.Second)
		exec(t, c, `ROLLBACK`)
		w.stop()
		w.expect(id, entry.Delivered, "")
	})
}

func TestADrainEndsAlthoughTheDatabaseStaysLocked(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: takes(2 * time.Second), ask: unanswered}
		w := open(t, options{}, tool("refund", entry.Queryable, o)).run()
		id := w.accept("refund", "order-17")
		pass(time.Second)
		c := foreign(t, w.path)
		exec(t, c, `BEGIN IMMEDIATE`)
		w.cancel()
		pass(5 * time.Second)
		w.cut(poller.ErrCutOff)
		began := time.Now()
		w.lose(ledger.ErrBusy)
		equal(t, "gave up after", time.Since(began).Round(time.Second), 5*time.Second)
		exec(t, c, `ROLLBACK`)

		n := w.next(tool("refund", entry.Queryable, &outside{ask: func(context.Context, handler.Call, int) handler.Answer {
			return handler.Answer{Found: handler.Applied, Code: "http_200"}
		}})).run()
		pass(time.Second)
		n.expect(id, entry.Delivered, "")
	})
}

// lose waits for the end of a drain that loses an outcome to err.
func (w *world) lose(want error) {
	w.t.Helper()
	err := <-w.ran
	if !errors.Is(err, poller.ErrUnrecorded) || !errors.Is(err, want) {
		w.t.Errorf("poller ended with %v, want %v and %v", err, poller.ErrUnrecorded, want)
	}
	w.ran <- nil
	w.stop()
}

func TestWhoIsInAHurryNeedNotWaitForALockedDatabase(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: takes(2 * time.Second)}
		w := open(t, options{}, tool("mail", entry.Idempotent, o)).run()
		id := w.accept("mail", "order-17")
		pass(time.Second)
		c := foreign(t, w.path)
		exec(t, c, `BEGIN IMMEDIATE`)
		w.cancel()
		pass(5 * time.Second)
		w.cut(poller.ErrCutOff)
		pass(time.Second)
		began := time.Now()
		w.poller.Abandon()
		w.lose(ledger.ErrBusy)
		equal(t, "gave up after", time.Since(began).Round(time.Second), 0)
		exec(t, c, `ROLLBACK`)
		w.expect(id, entry.Sending, "")
	})
}

func TestAnOutcomeIsRecordedSoonAfterTheFileTakesIt(t *testing.T) {
	story(t, func(t *testing.T) {
		w := open(t, options{}, tool("mail", entry.Idempotent, &outside{})).run()
		c := foreign(t, w.path)
		exec(t, c, `CREATE TRIGGER broken BEFORE INSERT ON outbox_receipt BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		id := w.accept("mail", "order-17")
		pass(time.Minute)
		w.expect(id, entry.Sending, "")
		exec(t, c, `DROP TRIGGER broken`)
		pass(time.Second)
		w.expect(id, entry.Delivered, "")
	})
}

func TestAQuestionIsGivenBackAtTheDrainLimit(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: func(context.Context, handler.Call, int) ([]byte, error) { return nil, errLost }}
		o.ask = func(ctx context.Context, _ handler.Call, _ int) handler.Answer {
			<-ctx.Done()
			return handler.Answer{Found: handler.NoAnswer, Code: "cancelled"}
		}
		w := open(t, options{}, tool("refund", entry.Queryable, o)).run()
		id := w.accept("refund", "order-17")
		pass(2 * time.Second)
		w.cancel()
		w.cut(poller.ErrCutOff)
		w.stop()
		r := w.expect(id, entry.Unknown, "unproven")
		equal(t, "queries, owner", [2]int64{int64(r.Queries), r.Owner}, [2]int64{0, 0})
		if r.DueAt.IsZero() {
			t.Error("nobody will ask again")
		}
	})
}
