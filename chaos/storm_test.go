package chaos_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/chaos"
)

// intent is one operation of the storm and what became of it.
type intent struct {
	tool, key, arguments string
	session              string // where its result goes; "": nowhere
	ref                  string // once it was acknowledged
	resent               int    // submits that were not answered
}

// TestKillStorm: whatever kills the daemon, and however often, nothing that was
// acknowledged is lost, nothing is done twice, and everything drains.
func TestKillStorm(t *testing.T) {
	n, kills := 1500, 8
	if full {
		n, kills = 10_000, 30
	}
	w := newWorld(t)
	w.configure(`
worker: {concurrency: 32}
retry:  {initial: 10ms, max: 500ms, max_attempts: 1000, max_lapses: 1000, max_queries: 1000}`,
		w.http("idem", "idempotent", chaos.Mixed, "timeout: 2s"),
		w.http("quer", "queryable", chaos.Mixed, "timeout: 2s"),
		w.http("opaq", "opaque", chaos.Mixed, "timeout: 2s"))
	rnd := rand.New(rand.NewPCG(uint64(seed(t)), 1))
	began := time.Now()

	r := w.up()
	intents := storm(n)
	var clients sync.WaitGroup
	var acks progress
	for i := range 8 {
		clients.Go(func() {
			for j := i; j < len(intents); j += 8 {
				w.insist(&intents[j])
				acks.add()
			}
		})
	}
	for i := range kills {
		acks.wait(t, (i+1)*n/(kills+1)+rnd.IntN(n/(2*kills+2)))
		time.Sleep(time.Duration(rnd.IntN(40)) * time.Millisecond)
		r.Kill()
		r = w.up()
	}
	clients.Wait()
	accepted := time.Since(began)
	w.until("the drain", func() bool { return w.metric(r, "outboxd_oldest_claimable_age_seconds") == 0 })
	drained := time.Since(began)
	states := w.stormSettled(intents)
	w.stormWitnessed(intents, states)
	w.down(r)

	resent := 0
	for _, in := range intents {
		resent += in.resent
	}
	hit, lapsed := w.takenOver()
	t.Logf("%d operations, %d kills (%d with work in flight, %d leases), %d submits without an answer; accepted after %s, drained after %s; %v",
		n, kills, hit, lapsed, resent, accepted.Round(time.Millisecond), drained.Round(time.Millisecond), states.counts())
	if hit < kills/2 || resent == 0 {
		t.Errorf("of %d kills %d found work in flight, and %d submits were cut off: nothing was shown", kills, hit, resent)
	}
}

func storm(n int) []intent {
	list := make([]intent, n)
	for i := range list {
		list[i] = intent{tool: []string{"idem", "quer", "opaq"}[i%3], key: fmt.Sprintf("order-%d", i),
			arguments: fmt.Sprintf(`{"amount":%d,"order":"order-%d"}`, i%97, i)}
	}
	return list
}

// progress lets somebody wait for a count.
type progress struct {
	mu sync.Mutex // guards n
	n  int
}

func (p *progress) add() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
}

func (p *progress) wait(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(4 * time.Minute); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		done := p.n >= n
		p.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the clients have not come to %d", n)
		}
	}
}

// insist submits with the same key until it is acknowledged, and once more now
// and then: the reference must be the same.
func (w *world) insist(in *intent) {
	c := body(in.tool, in.key, in.arguments)
	if in.session != "" {
		c.Session, c.Turn = in.session, 1
	}
	for {
		a, err := w.client.Submit(w.ctx, c, 0)
		if err == nil {
			in.ref = a.StatusRef
			return
		}
		var p *api.Problem
		if errors.As(err, &p) && p.Status < 500 {
			w.t.Errorf("submit %s: %v", in.key, err)
			return
		}
		if w.ctx.Err() != nil {
			return
		}
		in.resent++
		time.Sleep(2 * time.Millisecond)
	}
}

// finals is what the storm's operations came to, by status_ref.
type finals map[string]api.Answer

func (f finals) counts() map[string]int {
	n := map[string]int{}
	for _, a := range f {
		n[a.Tool+" "+a.Status]++
	}
	return n
}

// stormSettled waits for all of them: delivered or, of the opaque tool, unknown
// with a reason. The same key answers with the same reference.
func (w *world) stormSettled(intents []intent) finals {
	w.t.Helper()
	answers := make([]api.Answer, len(intents))
	var askers sync.WaitGroup
	for i := range 8 {
		askers.Go(func() {
			for j := i; j < len(intents); j += 8 {
				answers[j] = w.stormAsked(intents[j])
			}
		})
	}
	askers.Wait()
	states := finals{}
	for i, in := range intents {
		states[in.ref] = answers[i]
	}
	equal(w.t, "operations", len(states), len(intents))
	return states
}

func (w *world) stormAsked(in intent) api.Answer {
	a, err := w.client.Status(w.ctx, in.ref, patience)
	if err != nil || a.IdempotencyKey != in.key || a.Tool != in.tool {
		w.t.Errorf("%s is answered as %s of %s, %v; want %s of %s", in.ref, a.IdempotencyKey, a.Tool, err, in.key, in.tool)
	}
	unknown := a.Status == "unknown" && a.Reason != "" && in.tool == "opaq"
	if a.Status != "succeeded" && !unknown {
		w.t.Errorf("%s (%s) ended %s, reason %q", in.key, in.tool, a.Status, a.Reason)
	}
	again, err := w.client.Submit(w.ctx, body(in.tool, in.key, in.arguments), 0)
	if err != nil || again.StatusRef != in.ref {
		w.t.Errorf("%s submitted again: %q, %v; it was acknowledged as %q", in.key, again.StatusRef, err, in.ref)
	}
	return a
}

// stormWitnessed compares what the daemon says with what the witness saw.
func (w *world) stormWitnessed(intents []intent, states finals) {
	w.t.Helper()
	requests, effects := map[string][]chaos.Record{}, map[string]int{}
	for _, r := range w.seen(chaos.Asked) {
		requests[r.Operation] = append(requests[r.Operation], r)
	}
	for _, r := range w.seen(chaos.Effect) {
		effects[r.Operation]++
	}
	keys := map[string]string{}
	for _, in := range intents {
		if err := sameRequests(in, requests[in.ref], keys); err != nil {
			w.t.Errorf("%s (%s): %v", in.key, in.tool, err)
		}
		n, status := effects[in.ref], states[in.ref].Status
		if n > 1 || (n == 0 && status == "succeeded") {
			w.t.Errorf("%s (%s, %s) took effect %d times", in.key, in.tool, status, n)
		}
		delete(requests, in.ref)
	}
	for ref := range requests {
		w.t.Errorf("the witness has requests for %s, which nobody submitted", ref)
	}
}

// sameRequests: one key and the same bytes at every attempt, a number of its own
// and a higher token for each. An opaque key comes once.
func sameRequests(in intent, list []chaos.Record, keys map[string]string) error {
	slices.SortStableFunc(list, func(a, b chaos.Record) int { return cmp.Compare(a.Attempt, b.Attempt) })
	sum := sha256.Sum256([]byte(in.arguments))
	for i, r := range list {
		if other, ok := keys[r.Key]; ok && other != in.ref {
			return fmt.Errorf("its wire key is also that of %s", other)
		}
		keys[r.Key] = in.ref
		switch {
		case r.Body != hex.EncodeToString(sum[:]):
			return fmt.Errorf("attempt %d brought other bytes", r.Attempt)
		case r.Key != list[0].Key:
			return fmt.Errorf("attempt %d came with another key", r.Attempt)
		case i > 0 && (r.Attempt == list[i-1].Attempt || r.Token <= list[i-1].Token):
			return fmt.Errorf("attempt %d with token %d follows attempt %d with token %d",
				r.Attempt, r.Token, list[i-1].Attempt, list[i-1].Token)
		}
	}
	if in.tool == "opaq" && len(list) > 1 {
		return fmt.Errorf("an opaque request was sent %d times", len(list))
	}
	return nil
}

var lapsedAtStart = regexp.MustCompile(`"database opened".*"lapsed":(\d+)`)

// takenOver is how many starts found work of a dead daemon, and how much in all.
func (w *world) takenOver() (starts, leases int) {
	w.t.Helper()
	text, err := os.ReadFile(w.daemon.Log)
	must(w.t, err)
	for _, m := range lapsedAtStart.FindAllSubmatch(text, -1) {
		n, err := strconv.Atoi(string(m[1]))
		must(w.t, err)
		if n > 0 {
			starts++
		}
		leases += n
	}
	return starts, leases
}
