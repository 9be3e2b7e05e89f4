package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/outboxd/outboxd/audit"
	"github.com/outboxd/outboxd/chaos"
	"github.com/outboxd/outboxd/ledger"
)

// mixSections let everything happen that can, soon.
const mixSections = `
worker: {concurrency: 32, poll_interval: 100ms}
lease:  {ttl: 1s, heartbeat: 100ms}
retry:  {initial: 10ms, max: 100ms, max_attempts: 1000, max_lapses: 1000, max_queries: 1000}`

// session is where some results go.
const session = "conversation"

// mixTools are what the operations of a mix are for, in turn.
var mixTools = []string{"idem", "quer", "opaq", "reje", "slow", "quer"}

// configureMix writes a configuration with which every kind of commit occurs.
func (w *world) configureMix(more string) {
	w.t.Helper()
	w.configure(mixSections+more,
		w.http("idem", "idempotent", chaos.Mixed, "timeout: 2s"), w.http("quer", "queryable", chaos.Mixed, "timeout: 2s"),
		w.http("opaq", "opaque", chaos.Mixed, "timeout: 2s"), w.http("reje", "opaque", chaos.Reject, "timeout: 2s"),
		w.http("slow", "idempotent", "steady-250ms", "timeout: 2s"), w.shell("once", "idempotent", "exit 0", ""))
}

// feeder submits operations of the mix until it is stopped. Each is submitted
// until it is acknowledged, whoever dies meanwhile.
type feeder struct {
	w    *world
	wg   sync.WaitGroup
	ctx  context.Context
	stop context.CancelFunc

	mu   sync.Mutex // guards what follows
	next int
	all  []*intent
}

// feed starts a feeder with so many clients. Its keys begin with prefix.
func (w *world) feed(clients int, prefix string) *feeder {
	ctx, stop := context.WithCancel(w.ctx)
	f := &feeder{w: w, ctx: ctx, stop: stop}
	for range clients {
		f.wg.Go(func() {
			for ctx.Err() == nil {
				f.w.insist(f.take(prefix))
			}
		})
	}
	return f
}

func (f *feeder) take(prefix string) *intent {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.next
	f.next++
	in := &intent{tool: mixTools[i%len(mixTools)], key: fmt.Sprintf("%s-%d", prefix, i), arguments: fmt.Sprintf(`{"amount":%d}`, i)}
	if prefix == "order" && in.tool == "idem" {
		in.session = session
	}
	f.all = append(f.all, in)
	return in
}

// end returns all of them once each is acknowledged.
func (f *feeder) end() []intent {
	f.stop()
	f.wg.Wait()
	var list []intent
	for _, in := range f.all {
		list = append(list, *in)
	}
	return list
}

// fact is what the file says of an operation.
type fact struct {
	tool, key, state, reason string
	receipts                 int
	settled                  bool // nothing more happens to it by itself
}

func (w *world) facts(db string) map[string]fact {
	w.t.Helper()
	h := w.openFile(db)
	defer h.Close()
	rows, err := h.Query(`SELECT o.status_ref, o.tool_name, o.idempotency_key, e.state, COALESCE(e.reason, ''),
		(SELECT count(*) FROM outbox_receipt r WHERE r.operation_id = o.id), e.due_at IS NULL
		FROM outbox_operation o JOIN outbox_entry e ON e.operation_id = o.id`)
	must(w.t, err)
	defer rows.Close()
	list := map[string]fact{}
	for rows.Next() {
		var ref string
		var f fact
		must(w.t, rows.Scan(&ref, &f.tool, &f.key, &f.state, &f.reason, &f.receipts, &f.settled))
		list[ref] = f
	}
	must(w.t, rows.Err())
	return list
}

// snapshot copies the file of a daemon that is dead, as the kill left it.
func (w *world) snapshot() string {
	w.t.Helper()
	const name = "crashed.db"
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(w.path("outbox.db" + suffix))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		must(w.t, err)
		must(w.t, os.WriteFile(w.path(name+suffix), b, 0o600))
	}
	return name
}

// auditCrash looks at what a dead daemon left, before anybody else does: whole,
// with everything that was acknowledged, and nothing dead that took effect. It
// returns what had an end.
func (w *world) auditCrash() map[string]fact {
	w.t.Helper()
	name := w.snapshot()
	defer removeDatabase(w.path(name))
	l, err := ledger.Open(w.ctx, w.path(name), ledger.Options{ReadOnly: true, Readers: 1})
	if errors.Is(err, ledger.ErrNoSchema) || errors.Is(err, ledger.ErrOlder) {
		return nil // it died before it had made the tables, or between two steps of an upgrade
	}
	must(w.t, err)
	report, err := audit.Run(w.ctx, l)
	must(w.t, errors.Join(err, l.Close()))
	for _, f := range report.Findings {
		w.t.Errorf("after the crash: %s %s: %s", f.Code, f.StatusRef, f.What)
	}
	facts := w.facts(name)
	effects := w.effects()
	ended := map[string]fact{}
	for ref, f := range facts {
		if f.state == "dead" && effects[ref] > 0 {
			w.t.Errorf("after the crash: %s is dead and took effect", f.key)
		}
		if f.state == "delivered" || f.state == "dead" {
			ended[ref] = f
		}
	}
	return ended
}

func removeDatabase(path string) {
	list, _ := filepath.Glob(path + "*") // the pattern is right
	for _, name := range list {
		_ = os.Remove(name)
	}
}

func (w *world) effects() map[string]int {
	n := map[string]int{}
	for _, r := range w.seen(chaos.Effect) {
		n[r.Operation]++
	}
	return n
}

// drained waits until nothing more happens to anything by itself.
func (w *world) drained() {
	w.t.Helper()
	w.until("the drain", func() bool {
		return w.count(`SELECT count(*) FROM outbox_entry WHERE due_at IS NOT NULL`) == 0
	})
}

// verify compares what was acknowledged, what the file says and what the witness
// saw, once everything has drained. before is what had an end when a daemon died:
// it must still have it.
func (w *world) verify(intents []intent, before map[string]fact) {
	w.t.Helper()
	facts, effects, keys := w.facts("outbox.db"), w.effects(), map[string]string{}
	requests := map[string][]chaos.Record{}
	for _, r := range w.seen(chaos.Asked) {
		requests[r.Operation] = append(requests[r.Operation], r)
	}
	known := map[string]bool{}
	for _, in := range intents {
		known[in.ref] = true
		f, ok := facts[in.ref]
		if !ok || f.key != in.key || f.tool != in.tool {
			w.t.Errorf("%s was acknowledged as %s: the file has %q of %q", in.key, in.ref, f.key, f.tool)
			continue
		}
		strict := in
		if in.tool == "reje" {
			strict.tool = "opaq"
		}
		if err := sameRequests(strict, requests[in.ref], keys); err != nil {
			w.t.Errorf("%s (%s): %v", in.key, in.tool, err)
		}
		if err := f.agrees(effects[in.ref]); err != nil {
			w.t.Errorf("%s (%s): %v", in.key, in.tool, err)
		}
	}
	for ref := range requests {
		if !known[ref] {
			w.t.Errorf("the witness has requests for %s, which nobody submitted", ref)
		}
	}
	for ref, f := range before {
		now, there := facts[ref]
		purged := !there && f.tool == "once"
		if now.state != f.state && !purged && (f.state != "dead" || now.state != "discarded") {
			w.t.Errorf("%s was %s when the daemon died and is %s", f.key, f.state, facts[ref].state)
		}
	}
}

// agrees: what an operation of the mix came to is allowed, and is what the
// witness saw.
func (f fact) agrees(effects int) error {
	opaque := f.tool == "opaq" || f.tool == "reje"
	switch {
	case effects > 1:
		return fmt.Errorf("%s: it took effect %d times", f.state, effects)
	case f.state == "delivered" && (effects != 1 || f.receipts != 1):
		return fmt.Errorf("delivered with %d effects and %d receipts", effects, f.receipts)
	case f.state == "delivered":
		return nil
	case f.receipts != 0:
		return fmt.Errorf("%s with %d receipts", f.state, f.receipts)
	case f.state == "dead" && (effects > 0 || f.tool != "reje"):
		return fmt.Errorf("dead (%s) with %d effects", f.reason, effects)
	case f.state == "dead", f.state == "discarded" && effects == 0 && f.tool == "reje", f.state == "unknown" && opaque && f.settled && f.reason != "":
		return nil
	}
	return fmt.Errorf("%s (%q): that is no end", f.state, f.reason)
}

// replay prints what repeats a case that failed.
func replay(t *testing.T, plan string) {
	t.Cleanup(func() {
		if t.Failed() {
			name, _, _ := strings.Cut(t.Name(), "/")
			t.Logf("to repeat it: OUTBOXD_PLAN='%s' go test -count=1 -run '^%s$' ./chaos", plan, name)
		}
	})
}
