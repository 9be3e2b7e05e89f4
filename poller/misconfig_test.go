package poller_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
)

func TestTheSameRefusalOfFiveEntriesInARowPausesTheToolAndKeepsTheBacklog(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{outcome: func(_ handler.Call, n int) handler.Outcome {
			if n == 3 {
				return handler.Outcome{Observed: handler.Succeeded, Code: "http_200", Answered: true} // no streak
			}
			return handler.Outcome{Observed: handler.Rejected, Code: "http_404", Answered: true}
		}}
		w := open(t, options{}, tool("mail", entry.Idempotent, o, func(c *config.Tool) { c.Concurrency = 1 })).run()
		w.acceptMany("mail", 20)
		pass(time.Minute)
		equal(t, "requests", len(o.called()), 8)
		equal(t, "states", fmt.Sprint(w.states("mail")), "map[dead:7 delivered:1 pending:12]")
		tools, err := w.poller.Tools(t.Context())
		must(t, err)
		equal(t, "reason", tools[0].PauseReason, "misconfigured: http_404")

		must(t, w.poller.Resume(t.Context(), "mail")) // and nothing was mended
		pass(time.Minute)
		equal(t, "states", fmt.Sprint(w.states("mail")), "map[dead:12 delivered:1 pending:7]")
	})
}

// paused is the reason for which a tool is paused, "" where it is not.
func (w *world) paused(tool string) string {
	w.t.Helper()
	tools, err := w.poller.Tools(w.t.Context())
	must(w.t, err)
	for _, s := range tools {
		if s.Name == tool {
			return s.PauseReason
		}
	}
	return ""
}

func TestAToolThatCannotStartIsPausedWithItsBacklogAlive(t *testing.T) {
	for _, code := range []string{"not_found", "not_executable", "bad_interpreter", "bad_format", "dir_missing",
		"tls_untrusted", "tls_expired", "tls_wrong_name"} {
		t.Run(code, func(t *testing.T) {
			story(t, func(t *testing.T) {
				core, logs := observer.New(zap.WarnLevel)
				o := &outside{outcome: func(handler.Call, int) handler.Outcome {
					return handler.Outcome{Observed: handler.NotSent, Code: code, Answered: true}
				}}
				w := open(t, options{concurrency: 1, log: zap.New(core)}, tool("mail", entry.Opaque, o, every(time.Minute))).run()
				w.acceptMany("mail", 2)
				pass(5 * time.Minute) // two that fail again and again are no five
				equal(t, "paused by two", w.paused("mail"), "")
				before := len(o.called())
				for i := range 8 {
					w.accept("mail", fmt.Sprint("other-", i))
				}
				pass(time.Hour)
				equal(t, "pause", w.paused("mail"), "misconfigured: "+code)
				equal(t, "waiting", w.states("mail")[entry.Pending], 10)
				equal(t, "warnings", logs.FilterMessage("tool looks misconfigured").Len(), len(o.called()))
				equal(t, "requests after the five were complete", len(o.called()) <= before+5, true)
			})
		})
	}
}

func TestAPauseThatTheFileDoesNotTakeIsRepeated(t *testing.T) {
	story(t, func(t *testing.T) {
		o := &outside{do: nil, outcome: func(handler.Call, int) handler.Outcome {
			return handler.Outcome{Observed: handler.Rejected, Code: "http_401", Answered: true}
		}}
		w := open(t, options{concurrency: 1}, tool("mail", entry.Idempotent, o)).run()
		c := foreign(t, w.path)
		synctest.Wait()
		exec(t, c, `CREATE TRIGGER broken BEFORE UPDATE OF paused ON outbox_tool BEGIN SELECT RAISE(ABORT, 'broken'); END`)
		w.acceptMany("mail", 10)
		pass(time.Minute)
		equal(t, "requests", len(o.called()), 5)
		equal(t, "pause", w.paused("mail"), "")
		exec(t, c, `DROP TRIGGER broken`)
		pass(time.Second)
		equal(t, "pause", w.paused("mail"), "misconfigured: http_401")
		equal(t, "requests", len(o.called()), 5)
	})
}
