package poller_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
)

// patient gives a tool all the time in the world.
func patient(c *config.Tool) { c.Timeout = time.Hour }

// takes answers after d, whatever its context says.
func takes(d time.Duration) func(context.Context, handler.Call, int) ([]byte, error) {
	return func(_ context.Context, c handler.Call, n int) ([]byte, error) {
		<-time.After(d)
		return fmt.Appendf(nil, `{"attempt":%d}`, c.Attempt), nil
	}
}

func TestWorkTenTimesLongerThanTheLeaseRunsOnce(t *testing.T) {
	for _, effect := range []entry.Effect{entry.Idempotent, entry.Queryable, entry.Opaque} {
		t.Run(string(effect), func(t *testing.T) {
			story(t, func(t *testing.T) {
				o := &outside{do: takes(10 * time.Second), ask: neverAsked(t)}
				w := open(t, options{ttl: time.Second}, tool("slow", effect, o, patient)).run()
				id := w.accept("slow", "order-17")
				pass(11 * time.Second)
				w.expect(id, entry.Delivered, "")
				equal(t, "calls", len(o.called()), 1)
			})
		})
	}
}

func neverAsked(t *testing.T) func(context.Context, handler.Call, int) handler.Answer {
	return func(context.Context, handler.Call, int) handler.Answer {
		t.Error("asked")
		return handler.Answer{}
	}
}

// Another program writes for 300 ms, again and again, and leaves 20 ms between.
func TestWorkThirtyTimesLongerThanTheLeaseRunsOnceOnASlowDatabase(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: takes(30 * time.Second)}
		w := open(t, options{ttl: time.Second}, tool("slow", entry.Idempotent, o, patient)).run()
		other := open(t, options{path: w.path, ttl: time.Second}, tool("slow", entry.Idempotent, o, patient)).run()
		id := w.accept("slow", "order-17")
		pass(time.Millisecond)

		c := foreign(t, w.path)
		for range 90 {
			exec(t, c, `BEGIN IMMEDIATE`)
			<-time.After(300 * time.Millisecond)
			exec(t, c, `ROLLBACK`)
			<-time.After(20 * time.Millisecond)
		}
		pass(5 * time.Second)
		w.expect(id, entry.Delivered, "")
		equal(t, "calls", len(o.called()), 1)
		equal(t, "lapses", w.seen.lapsed+other.seen.lapsed, 0)
	})
}

func TestALockHeldElsewhereForThreeLeasesCausesNoSecondExecution(t *testing.T) {
	story(t, func(t *testing.T) {
		for _, effect := range []entry.Effect{entry.Idempotent, entry.Queryable, entry.Opaque} {
			o := &outside{do: takes(4 * time.Second), ask: neverAsked(t)}
			w := open(t, options{ttl: 3 * time.Second}, tool("slow", effect, o)).run()
			id := w.accept("slow", "order-17")
			pass(time.Second)

			c := foreign(t, w.path)
			exec(t, c, `BEGIN IMMEDIATE`)
			pass(9 * time.Second) // it was done 3 s later, and could not be recorded
			if busy := w.ledger.Health().Busy; busy < 5*time.Second {
				t.Errorf("busy for %v, want to be told of it", busy)
			}
			exec(t, c, `ROLLBACK`)
			pass(2 * time.Second)

			w.expect(id, entry.Delivered, "")
			equal(t, string(effect)+": calls", len(o.called()), 1)
			equal(t, "evidence", join(w.evidence(id)), "")
			w.stop()
		}
	})
}

// Heartbeats fail, for whatever reason, and passes go on.
func TestAProcessNeverEndsALeaseOfItsOwnByTime(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: takes(20 * time.Second)}
		w := open(t, options{ttl: time.Second}, tool("bell", entry.Opaque, o, patient)).run()
		id := w.accept("bell", "order-17")
		synctest.Wait()
		w.unkeep()
		pass(10 * time.Second)
		w.expect(id, entry.Sending, "")
		pass(11 * time.Second)
		w.expect(id, entry.Delivered, "")
		equal(t, "calls", len(o.called()), 1)
	})
}

// two is a process A whose handler for the key hangs and whose leases run out,
// and a process B on the same file.
type two struct {
	a, b       *world
	outA, outB *outside
	answerA    chan error // what A's handler answers in the end
	answerB    chan error
	id         int64
}

func twoProcesses(t *testing.T, effect entry.Effect) *two {
	z := &two{answerA: make(chan error, 1), answerB: make(chan error, 1)}
	z.outA = &outside{do: func(context.Context, handler.Call, int) ([]byte, error) {
		return []byte(`{"by":"A"}`), <-z.answerA
	}}
	z.outB = &outside{do: func(context.Context, handler.Call, int) ([]byte, error) {
		return []byte(`{"by":"B"}`), <-z.answerB
	}}
	if effect == entry.Queryable {
		z.outA.ask, z.outB.ask = unanswered, unanswered
	}
	z.a = open(t, options{ttl: 5 * time.Second}, tool("refund", effect, z.outA, patient)).run()
	z.id = z.a.accept("refund", "order-17")
	synctest.Wait()
	z.a.unkeep() // A stands still: no heartbeat, no pass that matters
	z.a.cancel()
	z.b = open(t, options{path: z.a.path, ttl: 5 * time.Second}, tool("refund", effect, z.outB, patient)).run()
	return z
}

func unanswered(context.Context, handler.Call, int) handler.Answer {
	return handler.Answer{Found: handler.NoAnswer, Code: "dns"}
}

func TestZombieCannotSettleWhatAnotherProcessHasTakenOver(t *testing.T) {
	outcomes := map[string]error{
		"succeeded":         nil,
		"rejected":          handler.Reject(errLost),
		"not_sent":          handler.Unsent(errLost),
		"may_have_happened": errLost,
	}
	for observed, answer := range outcomes {
		t.Run(observed, func(t *testing.T) {
			story(t, func(t *testing.T) {
				z := twoProcesses(t, entry.Idempotent)
				pass(6 * time.Second) // the lease is over, B has claimed and is sending
				equal(t, "calls of A and B", [2]int{len(z.outA.called()), len(z.outB.called())}, [2]int{1, 1})
				identical(t, append(z.outA.called(), z.outB.called()...))
				before := z.b.expect(z.id, entry.Sending, "")

				z.answerA <- answer
				synctest.Wait()
				equal(t, "stale settles", z.a.seen.stale, 1)
				if after := z.b.expect(z.id, entry.Sending, ""); after.Token != before.Token || after.Attempts != 2 || after.Failures != 0 {
					t.Errorf("late settle changed the entry from %+v to %+v", before, after)
				}
				equal(t, "receipt", z.b.receipt(z.id), "")

				z.answerB <- nil
				synctest.Wait()
				z.b.expect(z.id, entry.Delivered, "")
				equal(t, "receipt", z.b.receipt(z.id), `fresh 2 {"by":"B"}`)
				code := "returned"
				if observed == "may_have_happened" {
					code = "error"
				}
				equal(t, "evidence", join(z.b.evidence(z.id)), "lapse lapsed lease_over; late "+observed+" "+code)
				equal(t, "lapses that B was told of", z.b.seen.lapsed, 1)
			})
		})
	}
}

func TestZombieThatWakesAfterTheReceiptChangesNothing(t *testing.T) {
	story(t, func(t *testing.T) {
		z := twoProcesses(t, entry.Idempotent)
		z.answerB <- nil
		pass(6 * time.Second)
		z.b.expect(z.id, entry.Delivered, "")
		z.answerA <- nil
		synctest.Wait()
		equal(t, "receipt", z.b.receipt(z.id), `fresh 2 {"by":"B"}`)
		equal(t, "evidence", join(z.b.evidence(z.id)), "lapse lapsed lease_over; late succeeded returned")
	})
}

func TestLateSuccessOfALapsedAttemptDeliversWhileNobodyHasIt(t *testing.T) {
	t.Run("opaque held", func(t *testing.T) {
		story(t, func(t *testing.T) {
			z := twoProcesses(t, entry.Opaque)
			pass(6 * time.Second)
			z.b.expect(z.id, entry.Unknown, "lapsed")
			z.b.held(z.id)
			z.answerA <- nil
			synctest.Wait()
			z.b.expect(z.id, entry.Delivered, "")
			equal(t, "receipt", z.b.receipt(z.id), `fresh 1 {"by":"A"}`)
			equal(t, "calls of B", len(z.outB.called()), 0)
		})
	})
	t.Run("queryable asked meanwhile", func(t *testing.T) {
		story(t, func(t *testing.T) {
			z := twoProcesses(t, entry.Queryable)
			asking := make(chan struct{})
			z.outB.answers(func(context.Context, handler.Call, int) handler.Answer {
				<-asking
				return handler.Answer{Found: handler.NotApplied, Code: "http_404"}
			})
			pass(6 * time.Second)
			if r := z.b.expect(z.id, entry.Unknown, "lapsed"); r.Token == 0 {
				t.Error("nobody asks")
			}
			z.answerA <- nil
			synctest.Wait()
			z.b.expect(z.id, entry.Delivered, "")
			close(asking)
			synctest.Wait()
			z.b.expect(z.id, entry.Delivered, "")
			equal(t, "evidence", join(z.b.evidence(z.id)), "lapse lapsed lease_over; late not_applied http_404")
		})
	})
	t.Run("proof of no effect", func(t *testing.T) {
		story(t, func(t *testing.T) {
			z := twoProcesses(t, entry.Opaque)
			pass(6 * time.Second)
			z.answerA <- handler.Reject(errLost)
			synctest.Wait()
			z.b.expect(z.id, entry.Dead, "rejected")
			equal(t, "evidence", join(z.b.evidence(z.id)), "lapse lapsed lease_over; late rejected returned")
		})
	})
}

// The mark is committed, and then the process stands still for longer than the
// attempt may take. Others may have asked by then and been told "not applied".
func TestNothingIsSentOnceItsAttemptIsTakenToBeOver(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{ask: neverAsked(t)}
		var commits atomic.Int32
		stand := func(int, time.Duration) {
			if commits.Add(1) == 4 { // tools, accept, claim, mark
				<-time.After(time.Minute)
			}
		}
		w := open(t, options{ledger: ledger.Options{Observe: stand}}, tool("refund", entry.Queryable, o)).run()
		synctest.Wait()
		id := w.accept("refund", "order-17")
		pass(30 * time.Second)
		w.expect(id, entry.Sending, "")
		pass(40 * time.Second)
		r := w.expect(id, entry.Delivered, "")
		equal(t, "attempts, failures, calls", [3]int{r.Attempts, r.Failures, len(o.called())}, [3]int{1, 0, 1})
		if sent := o.times[0]; sent.Sub(r.LastSentAt) > time.Second {
			t.Errorf("sent %v after it was marked", sent.Sub(r.LastSentAt))
		}
	})
}

func TestATimeLimitShorterThanACommitLeavesTheHandlerItsTime(t *testing.T) {
	for _, effect := range []entry.Effect{entry.Idempotent, entry.Queryable, entry.Opaque} {
		t.Run(string(effect), func(t *testing.T) {
			story(t, func(t *testing.T) {
				o := &outside{do: takes(50 * time.Millisecond), ask: neverAsked(t)}
				slow := func(int, time.Duration) { <-time.After(400 * time.Millisecond) }
				w := open(t, options{ledger: ledger.Options{Observe: slow}}, tool("mail", effect, o, func(c *config.Tool) {
					c.Timeout = 100 * time.Millisecond
				})).run()
				id := w.accept("mail", "order-17")
				pass(10 * time.Second)
				w.expect(id, entry.Delivered, "")
				equal(t, "calls", len(o.called()), 1)
			})
		})
	}
}

// A paused or forgotten tool is looked at by no pass; its leases end all the same.
func TestLeasesOfAPausedToolEndToo(t *testing.T) {
	story(t, func(t *testing.T) {
		z := twoProcesses(t, entry.Opaque)
		if err := z.b.poller.Pause(t.Context(), "refund", "test"); err != nil {
			t.Fatal(err)
		}
		pass(4 * time.Minute)
		z.b.expect(z.id, entry.Sending, "")
		pass(2 * time.Minute)
		z.b.expect(z.id, entry.Unknown, "lapsed")
		z.answerA <- errLost
	})
}
