package poller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// contractModel is what the world should be: who may, under which contract, and what
// was accepted and approved for each key.
type contractModel struct {
	w      *world
	o      *outside
	rnd    *rand.Rand
	effect entry.Effect

	mu       sync.Mutex // guards what follows, which the downstream looks at
	role     bool
	version  string
	lose     bool
	keys     map[string]*modelled // by key
	calls    map[string]int
	problems []string
	seen     map[string]int // what the random steps came to
}

type modelled struct {
	id       int64
	order    int
	version  string
	approved bool
	purged   bool
}

// called is the downstream: it says what must not have reached it.
func (m *contractModel) called(_ context.Context, c handler.Call, _ int) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.keys[c.Key]
	m.calls[c.Key]++
	for what, wrong := range map[string]bool{
		"a second request": m.calls[c.Key] > 1, "no role": !m.role, "another contract": k.version != m.version,
		"no approval": !k.approved, "other arguments": string(c.Arguments) != fmt.Sprintf(`{"order":%d}`, k.order),
	} {
		if wrong {
			m.problems = append(m.problems, fmt.Sprintf("key %s reached the downstream with %s", c.Key, what))
		}
	}
	if m.lose {
		return nil, errLost
	}
	return []byte(`{"done":true}`), nil
}

// install makes the registry, the guard and the roles what the model says.
func (m *contractModel) install(t *testing.T) {
	k := tool("refund", m.effect, m.o, every(time.Minute), wanting("required", time.Hour), func(c *config.Tool) {
		c.Revisions.Handler, c.Retry.MaxAttempts = m.version, 1000
	})
	var roles []string
	if m.role {
		roles = []string{"clerk"}
	}
	guardedBy(t, m.w, k, roles, static("clerk"))
}

func (m *contractModel) submit() {
	key, order := fmt.Sprintf("key-%d", m.rnd.IntN(6)), m.rnd.IntN(2)
	r := ledgertest.Request("refund", key)
	r.Arguments = fmt.Appendf(nil, `{"order":%d}`, order)
	p, err := intake.Prepare(m.w.poller.Work().Registry, r)
	if err != nil {
		m.w.t.Fatal(err)
	}
	var a intake.Accepted
	ledgertest.Write(m.w.t, m.w.ledger, func(tx *ledger.Tx) error {
		a, err = p.Accept(tx)
		if _, conflict := errors.AsType[*intake.Conflict](err); conflict {
			return nil
		}
		if _, gone := errors.AsType[*intake.Gone](err); gone {
			return nil
		}
		return err
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.keys[key]
	_, conflict := errors.AsType[*intake.Conflict](err)
	_, gone := errors.AsType[*intake.Gone](err)
	switch {
	case known != nil && known.purged: // its tombstone knows the request, which has no handler in it
		m.seen[fmt.Sprintf("gone: %t", gone)]++
		if conflict != (known.order != order) || gone == conflict {
			m.w.t.Errorf("%s: order %d after a purged order %d: got %+v, %v", key, order, known.order, a, err)
		}
	case known == nil:
		m.keys[key] = &modelled{id: a.ID, order: order, version: m.version}
		if !a.New {
			m.w.t.Errorf("%s: the first is no new one", key)
		}
	case conflict != (known.order != order || known.version != m.version), !conflict && (a.New || a.ID != known.id):
		m.w.t.Errorf("%s: order %d version %s after order %d version %s: got %+v, %v", key, order, m.version, known.order, known.version, a, err)
	}
}

func (m *contractModel) approve() {
	m.mu.Lock()
	k := m.keys[fmt.Sprintf("key-%d", m.rnd.IntN(6))]
	waits := k != nil && !k.purged && m.w.entry(k.id).State == entry.Waiting
	if waits {
		k.approved = true // before it is let go
	}
	m.mu.Unlock()
	if !waits {
		return
	}
	if err := m.w.approve(k.id, fmt.Sprintf("a-%d", k.id)); err != nil {
		m.w.t.Errorf("approve: %v", err)
	}
}

// purge removes what has ended, of which only the key is left.
func (m *contractModel) purge(t *testing.T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ended := 0
	for _, k := range m.keys {
		if !k.purged && m.w.entry(k.id).State.Terminal() {
			k.purged = true
			ended++
		}
	}
	sum, err := intake.Purge(t.Context(), m.w.ledger, intake.Retention{Tombstone: 1000 * time.Hour})
	m.seen["purged"] += ended
	if err != nil || sum.Operations != ended || sum.Tombstones != 0 {
		t.Errorf("purged %+v, %v, want the %d that have ended", sum, err, ended)
	}
}

// asked is the downstream that is asked: it must not be under another contract, and it
// tells what it did.
func (m *contractModel) asked(_ context.Context, c handler.Call, _ int) handler.Answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keys[c.Key].version != m.version {
		m.problems = append(m.problems, fmt.Sprintf("key %s was asked about under another contract", c.Key))
	}
	m.seen["asked"]++
	if m.lose {
		return handler.Answer{Found: handler.NoAnswer, Code: "lost"}
	}
	if m.calls[c.Key] == 0 {
		return handler.Answer{Found: handler.NotApplied}
	}
	return handler.Answer{Found: handler.Applied, Code: "found", Result: []byte(`{"done":true}`)}
}

// reconcile asks about whatever is unknown now: nothing is sent, and what is answered
// with a receipt is delivered.
func (m *contractModel) reconcile(t *testing.T) {
	m.mu.Lock()
	keys := maps.Clone(m.keys)
	calls := maps.Clone(m.calls)
	m.mu.Unlock()
	for key, k := range keys {
		if k.purged || m.w.entry(k.id).State != entry.Unknown {
			continue
		}
		err := m.w.poller.Reconcile(t.Context(), k.id)
		m.seen[fmt.Sprintf("reconciled: %t", err == nil)]++
		if state := m.w.entry(k.id).State; m.effect == entry.Opaque && err == nil || err == nil && !m.lose && state != entry.Delivered || err != nil && state != entry.Unknown {
			t.Errorf("%s: reconcile answers %v, and it is %s", key, err, state)
		}
		m.mu.Lock()
		if m.calls[key] != calls[key] {
			t.Errorf("%s: a question sent the request", key)
		}
		m.mu.Unlock()
	}
}

// change changes the world between two moments at which nothing runs.
func (m *contractModel) change(t *testing.T, fn func()) {
	m.mu.Lock()
	fn()
	m.mu.Unlock()
	m.install(t)
	pass(0)
}

func TestTheContractAgreesWithAModel(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			story(t, func(t *testing.T) {
				m := &contractModel{rnd: rand.New(rand.NewPCG(seed, 1)), keys: map[string]*modelled{}, calls: map[string]int{}, seen: seen, role: true, version: "v1", effect: entry.Opaque}
				m.o = &outside{do: m.called}
				if seed%2 == 1 {
					m.effect, m.o.ask = entry.Queryable, m.asked
				}
				m.w = open(t, options{poll: 5 * time.Minute}, tool("refund", m.effect, m.o)).run()
				m.install(t)
				for range 80 {
					switch m.rnd.IntN(10) {
					case 0, 1, 2:
						m.submit()
					case 3, 4:
						m.approve()
					case 5:
						m.change(t, func() { m.role = !m.role })
					case 6:
						m.change(t, func() { m.version = fmt.Sprint("v", 1+m.rnd.IntN(2)) })
					case 7:
						m.change(t, func() { m.lose = m.rnd.IntN(2) == 0 })
					case 8:
						m.purge(t)
					case 9:
						m.reconcile(t)
					}
					pass(time.Duration(m.rnd.IntN(90)) * time.Second)
				}
				m.settle(t)
			})
		})
	}
	for _, what := range []string{"purged", "asked", "gone: true", "gone: false", "reconciled: true", "reconciled: false"} {
		if seen[what] == 0 {
			t.Errorf("no step of any model came to %q: %v", what, seen)
		}
	}
}

// settle lets everything come to its end, and compares.
func (m *contractModel) settle(t *testing.T) {
	for _, version := range []string{"v1", "v2"} {
		m.change(t, func() { m.role, m.version, m.lose = true, version, false })
		pass(3 * time.Hour)
	}
	for _, problem := range m.problems {
		t.Error(problem)
	}
	for key, k := range m.keys {
		if k.purged {
			if want := m.calls[key]; want > 1 || want == 1 && !k.approved {
				t.Errorf("%s was purged after %d requests", key, want)
			}
			continue
		}
		switch state := m.w.entry(k.id).State; {
		case !k.approved:
			m.w.expect(k.id, entry.Discarded, "approval_expired")
		case state != entry.Delivered && state != entry.Unknown, m.calls[key] != 1:
			t.Errorf("%s ends %s after %d requests", key, state, m.calls[key])
		}
	}
}
