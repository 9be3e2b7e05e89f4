package poller_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/poller"
)

func TestADeadDestinationDelaysNoOtherTool(t *testing.T) {
	story(t, func(t *testing.T) {
		dead := &outside{do: func(ctx context.Context, _ handler.Call, _ int) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		alive := &outside{}
		w := open(t, options{concurrency: 8}, tool("dead", entry.Idempotent, dead, func(c *config.Tool) { c.Concurrency = 4 }),
			tool("alive", entry.Idempotent, alive)).run()
		w.acceptMany("dead", 1000)
		pass(30 * time.Second)
		for _, id := range w.acceptMany("alive", 10) {
			defer w.expect(id, entry.Delivered, "")
		}
		pass(time.Second)
		equal(t, "delivered", len(alive.called()), 10)
		if n := len(dead.called()); n < 12 || n > 20 {
			t.Errorf("%d requests to the dead destination in 31 s, want 4 at a time for 10 s each", n)
		}
	})
}

// busy counts passes and commits.
type busy struct{ passes, commits atomic.Int32 }

func (b *busy) options(o options) options {
	o.check = func() error { b.passes.Add(1); return nil }
	o.ledger.Observe = func(int, time.Duration) { b.commits.Add(1) }
	return o
}

func (b *busy) during(d time.Duration) (passes, commits int32) {
	b.passes.Store(0)
	b.commits.Store(0)
	pass(d)
	return b.passes.Load(), b.commits.Load()
}

func TestPausedAndUnconfiguredToolsNeitherBlockNorBurn(t *testing.T) {
	story(t, func(t *testing.T) {
		var b busy
		paused, gone, alive := &outside{}, &outside{}, &outside{}
		kits := []kit{tool("paused", entry.Idempotent, paused), tool("gone", entry.Idempotent, gone), tool("alive", entry.Idempotent, alive)}
		w := open(t, b.options(options{poll: 30 * time.Second}), kits...)
		must(t, w.poller.Swap(t.Context(), work(t, kits...)))
		must(t, w.poller.Pause(t.Context(), "paused", "repair"))
		w.acceptMany("paused", 200)
		left := w.acceptMany("gone", 200)
		must(t, w.poller.Swap(t.Context(), work(t, tool("paused", entry.Idempotent, paused),
			tool("alive", entry.Idempotent, alive, func(c *config.Tool) { c.Rate = config.Rate{Events: 20, Per: time.Second} }))))
		w.run()
		w.acceptMany("alive", 30)
		pass(10 * time.Second)
		equal(t, "requests", [3]int{len(paused.called()), len(gone.called()), len(alive.called())}, [3]int{0, 0, 30})

		if passes, commits := b.during(10 * time.Minute); passes > 25 || commits != 0 {
			t.Errorf("%d passes and %d commits in ten idle minutes with a poll interval of 30 s", passes, commits)
		}
		tools, err := w.poller.Tools(t.Context())
		must(t, err)
		var list []string
		for _, s := range tools {
			list = append(list, fmt.Sprint(s.Name, " ", s.Configured, " ", s.Paused, " ", s.PauseReason))
		}
		equal(t, "tools", join(list), "alive true false ; gone false false ; paused true true repair")

		must(t, w.poller.Resume(t.Context(), "paused"))
		must(t, w.poller.Swap(t.Context(), work(t, tool("paused", entry.Idempotent, paused), tool("gone", entry.Idempotent, gone))))
		pass(time.Second)
		equal(t, "requests", [2]int{len(paused.called()), len(gone.called())}, [2]int{200, 200})
		w.expect(left[0], entry.Delivered, "")
	})
}

func TestARateIsKept(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{}
		w := open(t, options{poll: time.Minute}, tool("mail", entry.Idempotent, o, func(c *config.Tool) {
			c.Rate = config.Rate{Events: 5, Per: time.Second}
		})).run()
		w.acceptMany("mail", 40)
		pass(4 * time.Second)
		if n := len(o.called()); n < 20 || n > 22 {
			t.Errorf("%d requests in 4 s at 5/s", n)
		}
		pass(5 * time.Second)
		equal(t, "requests", len(o.called()), 40)
	})
}

func TestAReloadThatLowersAToolsConcurrencyIsKept(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: takes(10 * time.Second)}
		some := func(n int) kit {
			return tool("mail", entry.Idempotent, o, patient, func(c *config.Tool) { c.Concurrency = n })
		}
		w := open(t, options{}, some(4)).run()
		w.acceptMany("mail", 20)
		pass(time.Second)
		equal(t, "requests", len(o.called()), 4)
		must(t, w.poller.Swap(t.Context(), work(t, some(1))))
		pass(5 * time.Second)
		equal(t, "requests after the reload", len(o.called()), 4)
		pass(20 * time.Second)
		equal(t, "requests one at a time", len(o.called()), 6)
		must(t, w.poller.Swap(t.Context(), work(t, some(8))))
		pass(time.Minute)
	})
}

func TestAPauseOutlivesARestartAndKeepsItsFirstReason(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{}
		k := tool("mail", entry.Idempotent, o)
		w := open(t, options{}, k).run()
		must(t, w.poller.Pause(t.Context(), "mail", "first"))
		must(t, w.poller.Pause(t.Context(), "mail", "second"))
		w.accept("mail", "order-17")
		pass(time.Second)
		w.crash()
		n := w.next(k).run()
		pass(time.Second)
		tools, err := n.poller.Tools(t.Context())
		must(t, err)
		equal(t, "reason", tools[0].PauseReason, "first")
		equal(t, "requests", len(o.called()), 0)
		if err := n.poller.Pause(t.Context(), "nobody", "x"); !errors.Is(err, poller.ErrUnknownTool) {
			t.Errorf("pause of an unknown tool answered %v", err)
		}
		must(t, n.poller.Resume(t.Context(), "mail"))
		must(t, n.poller.Resume(t.Context(), "mail"))
		pass(time.Second)
		equal(t, "requests", len(o.called()), 1)
	})
}

func TestAHighRateIsReached(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{}
		w := open(t, options{concurrency: 300}, tool("mail", entry.Idempotent, o, func(c *config.Tool) {
			c.Concurrency, c.Rate = 300, config.Rate{Events: 5000, Per: time.Second}
		}))
		w.acceptMany("mail", 400)
		began := time.Now()
		w.run()
		pass(time.Second)
		equal(t, "requests", len(o.called()), 400)
		// 50 ms' worth at once, and then 5 a millisecond
		if burst := o.times[249].Sub(began); burst > 5*time.Millisecond {
			t.Errorf("the first 250 took %v", burst)
		}
		if took := o.times[399].Sub(began); took < 25*time.Millisecond || took > 80*time.Millisecond {
			t.Errorf("400 at 5000/s took %v", took)
		}
	})
}

func TestRowsOfAnUnknownToolWaitInTheIntakeUntilItIsConfigured(t *testing.T) {
	story(t, func(t *testing.T) {
		later := &outside{}
		w := open(t, options{}, tool("mail", entry.Idempotent, &outside{})).run()
		c := foreign(t, w.path)
		for i := range 3 {
			exec(t, c, `INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)
				VALUES ('acme', 'shop', 'later', ?, '{}')`, fmt.Sprint("order-", i))
		}
		pass(5 * time.Second)
		equal(t, "requests", len(later.called()), 0)
		must(t, w.poller.Swap(t.Context(), work(t, tool("later", entry.Idempotent, later))))
		pass(time.Second)
		equal(t, "requests", len(later.called()), 3)

		exec(t, c, `INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)
			VALUES ('acme', 'shop', 'mail', 'order-9', '{}')`)
		pass(2 * time.Second)
		w.crash()
		mail := &outside{}
		w.next(tool("mail", entry.Idempotent, mail)).run()
		pass(time.Second)
		equal(t, "requests after a restart with another config", len(mail.called()), 1)
	})
}

func TestAPanicIsAnOutcomeWithItsStackInTheLogOnly(t *testing.T) {
	for _, how := range []string{"func", "handler"} {
		t.Run(how, func(t *testing.T) {
			story(t, func(t *testing.T) {
				core, logs := observer.New(zapcore.InfoLevel)
				blow := func(n int) {
					if n == 1 {
						panic("secret-value")
					}
				}
				o := &outside{do: func(_ context.Context, _ handler.Call, n int) ([]byte, error) { blow(n); return nil, nil }}
				if how == "handler" {
					o = &outside{outcome: func(_ handler.Call, n int) handler.Outcome {
						blow(n)
						return handler.Outcome{Observed: handler.Succeeded}
					}}
				}
				w := open(t, options{log: zap.New(core)}, tool("mail", entry.Idempotent, o)).run()
				id := w.accept("mail", "order-17")
				pass(5 * time.Second)
				w.expect(id, entry.Delivered, "")
				equal(t, "evidence", join(w.evidence(id)), "outcome may_have_happened panic")
				said := logs.FilterLevelExact(zapcore.ErrorLevel).All()
				equal(t, "errors logged", len(said), 1)
				for _, line := range said {
					text := fmt.Sprint(line.ContextMap())
					if !strings.Contains(text, "secret-value") || !strings.Contains(text, "_test.go") || len(text) > 8<<10 {
						t.Errorf("%d bytes are logged: %s", len(text), text)
					}
				}
				var excerpt string
				must(t, w.ledger.Read(t.Context(), func(v *ledger.View) error {
					return v.One(`SELECT excerpt FROM outbox_attempt`).Scan(&excerpt)
				}))
				if strings.Contains(excerpt, "secret-value") {
					t.Errorf("the panic's value is in the file: %s", excerpt)
				}
			})
		})
	}
}

func TestAHandlerThatIgnoresItsContextFreesItsSlot(t *testing.T) {
	story(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.ErrorLevel)
		never := make(chan struct{})
		o := &outside{do: func(_ context.Context, c handler.Call, _ int) ([]byte, error) {
			if c.Key == "stuck" {
				<-never
			}
			return nil, nil
		}}
		w := open(t, options{concurrency: 1, log: zap.New(core)}, tool("bell", entry.Opaque, o)).run()
		stuck, second := w.accept("bell", "stuck"), w.accept("bell", "second")
		pass(12 * time.Second)
		w.expect(stuck, entry.Unknown, "unproven")
		w.expect(second, entry.Delivered, "")
		equal(t, "reported", logs.FilterField(zap.String("code", "abandoned")).Len(), 1)
		close(never)
	})
}

func TestWhatAHandlerOfOthersSaysIsMadeFitForTheFile(t *testing.T) {
	story(t, func(t *testing.T) {
		loud := strings.Repeat("x", 5000)
		o := &outside{outcome: func(c handler.Call, _ int) handler.Outcome {
			switch c.Key {
			case "spaced":
				return handler.Outcome{Observed: handler.Succeeded, Result: []byte(`{ "b": 1, "a": 2 }`)}
			case "no JSON":
				return handler.Outcome{Observed: handler.Succeeded, Result: []byte(`done`)}
			}
			return handler.Outcome{Observed: "odd", Code: loud, Excerpt: loud, Answered: true}
		}}
		o.ask = func(context.Context, handler.Call, int) handler.Answer {
			return handler.Answer{Found: handler.Applied, Result: []byte(`[1, 2]`)}
		}
		w := open(t, options{}, tool("mail", entry.Queryable, o)).run()
		spaced, text, odd := w.accept("mail", "spaced"), w.accept("mail", "no JSON"), w.accept("mail", "odd")
		pass(10 * time.Second)
		equal(t, "spaced", w.receipt(spaced), `fresh 1 {"a":2,"b":1}`)
		equal(t, "no JSON", w.receipt(text), "fresh 1 ")
		equal(t, "answer", w.receipt(odd), "receipt_reconciled 1 [1,2]")
		if e := w.evidence(odd); len(e) != 1 || len(e[0]) > 120 || !strings.HasPrefix(e[0], "outcome may_have_happened xxx") {
			t.Errorf("evidence %s", join(e))
		}
	})
}

func TestTheObserverIsToldHowLongTheOutsideTook(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: func(context.Context, handler.Call, int) ([]byte, error) {
			<-time.After(3 * time.Second)
			return nil, errLost
		}}
		o.ask = func(context.Context, handler.Call, int) handler.Answer {
			<-time.After(2 * time.Second)
			return handler.Answer{Found: handler.Applied}
		}
		var wall clock
		w := open(t, options{ledger: ledger.Options{Now: wall.now}}, tool("refund", entry.Queryable, o)).run()
		w.accept("refund", "order-17")
		pass(time.Second)
		wall.set(time.Hour)
		c := foreign(t, w.path)
		exec(t, c, `BEGIN IMMEDIATE`)
		pass(10 * time.Second) // the settle waits, which is not the handler's time
		exec(t, c, `ROLLBACK`)
		pass(2 * time.Second)
		wall.set(-time.Hour)
		pass(10 * time.Second)
		equal(t, "attempts", join(w.seen.attempts), "refund may_have_happened 3s; refund query_applied 2s")
	})
}
