package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/chaos/point"
	"github.com/outboxd/outboxd/entry"
)

// cutting are the points that no daemon at work passes, with who does.
var cutting = map[string]func(t *testing.T, plan string){"migrate": upgradeKill, "restore": restoreKill}

// killAt is what kills somebody at a point; once says that it is passed only once.
func killAt(p point.Point) (kill func(t *testing.T, plan string), once bool) {
	kind, _, _ := strings.Cut(p.String(), ".")
	if kill, ok := cutting[kind]; ok {
		return kill, true // it is run as often as there are steps
	}
	return func(t *testing.T, plan string) { namedKill(t, []string{plan}) }, kind == "purge" // what is old enough is gone with the first
}

// template is a clean database that may be broken, made once by the first who
// needs it.
var template struct {
	once sync.Once
	file []byte
}

// TestNamedKills: the real daemon is killed at every point, at its n-th hit, while
// clients submit. What it leaves is whole, and the next one finishes the work.
func TestNamedKills(t *testing.T) {
	if plan := os.Getenv("OUTBOXD_PLAN"); plan != "" {
		if kill, ok := cutting[plan[:strings.IndexByte(plan+".", '.')]]; ok {
			kill(t, plan)
			return
		}
		namedKill(t, strings.Split(plan, ";"))
		return
	}
	nths, rounds := []int{1}, 1
	if full {
		nths, rounds = []int{1, 2, 5, 9}, 8
	}
	t.Run("points", func(t *testing.T) {
		for _, p := range point.All() {
			kill, once := killAt(p)
			t.Run(p.String(), func(t *testing.T) {
				t.Parallel()
				for range rounds {
					for _, nth := range nths {
						if nth > 1 && once {
							continue
						}
						kill(t, point.Plan{{Point: p, Action: point.Kill, Nth: nth}}.String())
					}
				}
			})
		}
	})
	t.Run("chains", func(t *testing.T) { chains(t, rounds*4) })
	for _, p := range point.All() {
		if n := figured("named kills", "at "+p.String()); n == 0 {
			t.Errorf("nobody was killed at %s", p)
		}
	}
}

// chains: three deaths in a row, the second while what the first left is taken
// over.
func chains(t *testing.T, n int) {
	for i, chain := range [][]string{
		{"mark.after=kill", "boot.after=kill", "retry.before=kill"},
		{"send.sent=kill@3", "retry.after=kill", "settle.before=kill"},
		{"settle.before=kill@2", "unknown.before=kill", "ask.after=kill"},
		{"claim.after=sleep:20ms,batch.after=kill", "claim.before=kill", "batch.before=kill@2"},
	} {
		for j := range max(n/4, 1) {
			t.Run(fmt.Sprint(i, "-", j), func(t *testing.T) {
				t.Parallel()
				namedKill(t, chain)
			})
		}
	}
}

// namedKill runs a daemon for each plan, which must die as it says, and then one
// that finishes the work.
func namedKill(t *testing.T, chain []string) {
	t.Helper()
	w := newWorld(t)
	replay(t, strings.Join(chain, ";"))
	w.configureMix("")
	w.fromTemplate()
	f := w.feed(6, "order")
	defer w.persons()()
	before := map[string]fact{}
	for _, plan := range chain {
		w.dies(plan)
		for ref, was := range w.auditCrash() {
			before[ref] = was
		}
	}
	r := w.up()
	intents := f.end()
	w.drained()
	w.verify(intents, before)
	w.down(r)
	figure("named kills", "operations", len(intents))
}

// dies starts a daemon that is to die at a point, and waits until it has.
func (w *world) dies(plan string) {
	w.t.Helper()
	parsed, err := point.Parse(plan)
	must(w.t, err)
	p, err := w.daemon.Armed(plan).Start()
	must(w.t, err)
	w.t.Cleanup(p.Kill)
	select {
	case <-p.Ended():
	case <-time.After(patience):
		w.t.Fatalf("%s: nobody came by within %s", plan, patience)
	}
	text, err := os.ReadFile(w.daemon.Log)
	must(w.t, err)
	lastStep := parsed[len(parsed)-1]
	if !strings.HasSuffix(string(text), point.Said(lastStep)) || p.Signalled() != syscall.SIGKILL {
		w.t.Fatalf("%s: it ended otherwise:\n%s", plan, tail(w.daemon.Log, 5))
	}
	figure("named kills", "kills", 1)
	figure("named kills", "at "+lastStep.Point.String(), 1)
}

// fromTemplate begins with an empty database that may be broken.
func (w *world) fromTemplate() {
	w.t.Helper()
	template.once.Do(func() {
		d := w.daemon
		d.Args = []string{"--chaos-create"}
		r := w.upWith(d)
		_, err := w.client.OpenSession(w.ctx, api.OpenSession{Principal: body("", "", "").Principal, Session: session})
		must(w.t, err)
		for i := range 3 {
			w.wantStatus("of long ago", w.settled(w.submit("once", fmt.Sprint("old-", i)).StatusRef), "succeeded", "")
		}
		r.Signal(syscall.SIGTERM)
		equal(w.t, "exit of the daemon that made the template", w.exit(r.Process), 0)
		old := w.open()
		_, err = old.Exec(`UPDATE outbox_entry SET changed_at = 1000, over_at = 1000 WHERE tool_name = 'once'`) // also no attempt may still run
		must(w.t, errors.Join(err, old.Close()))
		b, err := os.ReadFile(w.path("outbox.db"))
		must(w.t, err)
		template.file = b
	})
	must(w.t, os.WriteFile(w.path("outbox.db"), template.file, 0o600))
}

// persons discard what is dead and purge what is old, until they are stopped,
// whoever dies meanwhile.
func (w *world) persons() (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_, _ = w.client.Purge(ctx) // it may be dead, or die of it
			_, _ = w.client.Review(ctx, api.Review{Action: "discard", Filter: &api.ReviewFilter{Tool: "reje", States: []entry.State{entry.Dead}}, Limit: 3, Reason: "seen"})
			select {
			case <-ctx.Done():
			case <-time.After(30 * time.Millisecond):
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}
