package poller_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	_ "modernc.org/sqlite"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/lease"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
	"github.com/outboxd/outboxd/poller"
)

// story runs a test on a clock that stands still while anything works.
func story(t *testing.T, tell func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, tell)
}

// pass lets time go by, and then what it caused come to rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// outside is a downstream: it keeps what reached it and answers by its script.
type outside struct {
	mu    sync.Mutex // guards what follows
	calls []handler.Call
	times []time.Time
	asks  []handler.Call

	do  func(ctx context.Context, c handler.Call, n int) ([]byte, error) // nil: succeeds
	ask func(ctx context.Context, c handler.Call, n int) handler.Answer

	outcome func(c handler.Call, n int) handler.Outcome // in the place of do
	local   handler.Local                               // in the place of all of them
}

// Execute is the handler where outcome is set.
func (o *outside) Execute(_ context.Context, c handler.Call) handler.Outcome {
	return o.outcome(c, o.note(c))
}

func (o *outside) execute(ctx context.Context, c handler.Call) ([]byte, error) {
	n := o.note(c)
	if o.do == nil {
		return []byte(`{"done":true}`), nil
	}
	return o.do(ctx, c, n)
}

func (o *outside) note(c handler.Call) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls, o.times = append(o.calls, c), append(o.times, time.Now())
	return len(o.calls)
}

func (o *outside) answer(ctx context.Context, c handler.Call) (handler.Answer, error) {
	o.mu.Lock()
	o.asks = append(o.asks, c)
	n, ask := len(o.asks), o.ask
	o.mu.Unlock()
	return ask(ctx, c, n), nil
}

// answers changes what it says when it is asked.
func (o *outside) answers(ask func(ctx context.Context, c handler.Call, n int) handler.Answer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ask = ask
}

func (o *outside) called() []handler.Call {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.calls)
}

func (o *outside) asked() []handler.Call {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asks)
}

// gaps are the times between the calls.
func (o *outside) gaps() (gaps []time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := 1; i < len(o.times); i++ {
		gaps = append(gaps, o.times[i].Sub(o.times[i-1]))
	}
	return gaps
}

func (o *outside) pair() handler.Pair {
	if o.local != nil {
		return handler.Pair{Local: o.local}
	}
	p := handler.Pair{Handler: handler.Func(o.execute)}
	if o.outcome != nil {
		p.Handler = o
	}
	if o.ask != nil {
		p.Asker = handler.AskFunc(o.answer)
	}
	return p
}

// kit is one tool and what stands behind it.
type kit struct {
	config.Tool
	*outside
}

// tool has exact backoffs; change changes it before it is completed.
func tool(name string, effect entry.Effect, o *outside, change ...func(*config.Tool)) kit {
	c := ledgertest.Tool(name, effect)
	c.Retry.Jitter = "none"
	c.Timeout = 10 * time.Second
	for _, f := range change {
		f(&c)
	}
	return kit{c, o}
}

// world is one process: a file, a keeper and a poller.
type world struct {
	t      testing.TB
	path   string
	ledger *ledger.Ledger
	keeper *lease.Keeper
	poller *poller.Poller
	log    *zap.Logger
	seen   seen
	o      options

	cancel context.CancelFunc      // stops claiming
	cut    context.CancelCauseFunc // ends handlers
	hold   context.CancelFunc      // stops the keeper
	ran    chan error
	kept   chan struct{}
}

type options struct {
	path        string // "": a new file
	ledger      ledger.Options
	ttl         time.Duration // 0: 30s
	concurrency int           // 0: 8
	poll        time.Duration // 0: 1s
	tookOver    bool
	log         *zap.Logger
	check       func() error
}

// clock is a wall clock that can be set.
type clock struct{ by atomic.Int64 }

func (c *clock) now() time.Time       { return time.Now().Add(time.Duration(c.by.Load())) }
func (c *clock) set(by time.Duration) { c.by.Add(int64(by)) }

// seen is what the observer was told.
type seen struct {
	mu       sync.Mutex // guards what follows
	attempts []string   // tool outcome duration
	stale    int
	lapsed   int
	stepped  []time.Duration
	settled  []string
	lags     []time.Duration
	tookIn   [3]int // accepted, repeated, refused
	again    []string
}

func (s *seen) Attempt(tool, outcome string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = append(s.attempts, fmt.Sprint(tool, " ", outcome, " ", took))
}

func (s *seen) Stale(string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale++
}

func (s *seen) Stepped(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stepped = append(s.stepped, by)
}

func (s *seen) Settled(ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = append(s.settled, ref)
}

func (s *seen) lapse(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lapsed += n
}

// open is a process that does not work yet.
func open(t testing.TB, o options, kits ...kit) *world {
	t.Helper()
	if o.path == "" {
		o.path = filepath.Join(t.TempDir(), "outbox.db")
	}
	if o.ttl == 0 {
		o.ttl = 30 * time.Second
	}
	if o.concurrency == 0 {
		o.concurrency = 8
	}
	if o.poll == 0 {
		o.poll = time.Second
	}
	if o.log == nil {
		o.log = zap.NewNop()
	}
	w := &world{t: t, path: o.path, o: o, log: o.log, ledger: ledgertest.OpenAt(t, o.path, o.ledger)}
	w.keeper = lease.NewKeeper(w.ledger, lease.Options{TTL: o.ttl, Heartbeat: o.ttl / 3, Lapsed: w.seen.lapse}, w.log)
	w.poller = poller.New(w.ledger, w.keeper, work(t, kits...), poller.Options{
		Concurrency: o.concurrency, PollInterval: o.poll, TookOver: o.tookOver, Check: o.check, Observer: &w.seen}, w.log)
	return w
}

func work(t testing.TB, kits ...kit) *poller.Work {
	t.Helper()
	w := &poller.Work{Handlers: map[string]handler.Pair{}}
	var tools []config.Tool
	for _, k := range kits {
		tools = append(tools, k.Tool)
		w.Handlers[k.Name] = k.pair()
	}
	w.Registry = ledgertest.Registry(t, tools...)
	return w
}

// run lets the process work until the test ends or stop is called.
func (w *world) run() *world {
	polling, cancel := context.WithCancel(context.Background())
	working, cut := context.WithCancelCause(context.Background())
	w.cancel, w.cut, w.ran = cancel, cut, make(chan error, 1)
	go func() { w.ran <- w.poller.Run(polling, working) }()
	w.keep()
	w.t.Cleanup(w.stop)
	return w
}

func (w *world) keep() {
	keeping, hold := context.WithCancel(context.Background())
	w.hold, w.kept = hold, make(chan struct{})
	go func() {
		defer close(w.kept)
		_ = w.keeper.Run(keeping) // always nil
	}()
}

// unkeep lets every lease of the process run out.
func (w *world) unkeep() {
	w.hold()
	<-w.kept
}

// stop drains without a limit.
func (w *world) stop() {
	w.cancel()
	if err := <-w.ran; err != nil && w.ledger.Err() == nil && !errors.Is(err, ledger.ErrClosed) {
		w.t.Errorf("poller ended with %v", err)
	}
	w.ran <- nil
	w.unkeep()
}

// crash ends the process in the middle of everything: nothing that it finds out
// from now on gets into the file.
func (w *world) crash() {
	if err := w.ledger.Close(); err != nil {
		w.t.Errorf("close ledger: %v", err)
	}
	w.cut(errors.New("crash"))
	w.stop()
}

// next is the process that starts after this one crashed.
func (w *world) next(kits ...kit) *world {
	w.t.Helper()
	o := w.o
	o.path, o.tookOver = w.path, true
	n := open(w.t, o, kits...)
	if _, err := lease.TakeOver(context.Background(), n.ledger); err != nil {
		w.t.Fatalf("take over: %v", err)
	}
	return n
}

// accept accepts an operation of the tool and wakes the poller.
func (w *world) accept(tool, key string) int64 {
	w.t.Helper()
	a := ledgertest.Accept(w.t, w.ledger, w.poller.Work().Registry, ledgertest.Request(tool, key))
	w.poller.Wake()
	return a.ID
}

// acceptMany accepts n operations in one transaction.
func (w *world) acceptMany(tool string, n int) []int64 {
	w.t.Helper()
	prepared := make([]*intake.Prepared, n)
	for i := range prepared {
		var err error
		request := ledgertest.Request(tool, fmt.Sprintf("key-%d", i))
		if prepared[i], err = intake.Prepare(w.poller.Work().Registry, request); err != nil {
			w.t.Fatal(err)
		}
	}
	ids := make([]int64, n)
	ledgertest.Write(w.t, w.ledger, func(tx *ledger.Tx) error {
		for i, p := range prepared {
			a, err := p.Accept(tx)
			if err != nil {
				return err
			}
			ids[i] = a.ID
		}
		return nil
	})
	w.poller.Wake()
	return ids
}

// states counts the entries of a tool by state.
func (w *world) states(tool string) map[entry.State]int {
	w.t.Helper()
	counts := map[entry.State]int{}
	ledgertest.Read(w.t, w.ledger, func(v *ledger.View) error {
		clear(counts)
		return v.Each(func(r *ledger.Row) error {
			var s entry.State
			err := r.Scan(&s)
			counts[s]++
			return err
		}, `SELECT state FROM outbox_entry WHERE tool_name = ?`, tool)
	})
	return counts
}

// row is an entry with its reason.
type row struct {
	entry.Due
	Reason string
}

func (w *world) entry(id int64) (r row) {
	w.t.Helper()
	ledgertest.Read(w.t, w.ledger, func(v *ledger.View) (err error) {
		if r.Due, err = entry.Get(v, id); err != nil {
			return err
		}
		return v.One(`SELECT reason FROM outbox_entry WHERE operation_id = ?`, id).Scan(&r.Reason)
	})
	return r
}

// expect compares state and reason.
func (w *world) expect(id int64, state entry.State, reason string) row {
	w.t.Helper()
	r := w.entry(id)
	if r.State != state || r.Reason != reason {
		w.t.Errorf("entry %d is %s %q, want %s %q; evidence %v", id, r.State, r.Reason, state, reason, w.evidence(id))
	}
	return r
}

// held says that it is nobody's turn.
func (w *world) held(id int64) {
	w.t.Helper()
	if r := w.entry(id); !r.DueAt.IsZero() {
		w.t.Errorf("entry %d is due at %v, want held", id, r.DueAt)
	}
}

// evidence of an operation: kind, class, code.
func (w *world) evidence(id int64) (list []string) {
	w.t.Helper()
	ledgertest.Read(w.t, w.ledger, func(v *ledger.View) error {
		list = nil
		return v.Each(func(r *ledger.Row) error {
			var kind, class, code string
			err := r.Scan(&kind, &class, &code)
			list = append(list, kind+" "+class+" "+code)
			return err
		}, `SELECT kind, class, code FROM outbox_attempt WHERE operation_id = ? ORDER BY id`, id)
	})
	return list
}

// receipt of an operation: how, attempt, result.
func (w *world) receipt(id int64) (text string) {
	w.t.Helper()
	ledgertest.Read(w.t, w.ledger, func(v *ledger.View) error {
		var how, result string
		var attempt int
		err := v.One(`SELECT how, attempt, result FROM outbox_receipt WHERE operation_id = ?`, id).
			Scan(&how, &attempt, &result)
		text = fmt.Sprint(how, " ", attempt, " ", result)
		if errors.Is(err, sql.ErrNoRows) {
			text, err = "", nil
		}
		return err
	})
	return text
}

// foreign is another program's connection to the file.
func foreign(t testing.TB, path string) *sql.Conn {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		_ = db.Close()
	})
	return c
}

func exec(t testing.TB, c *sql.Conn, statement string, args ...any) {
	t.Helper()
	if _, err := c.ExecContext(context.Background(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// identical demands that all calls carry one key and the same bytes, under
// tokens that rise.
func identical(t testing.TB, calls []handler.Call) {
	t.Helper()
	for i := 1; i < len(calls); i++ {
		a, b := calls[i-1], calls[i]
		if a.WireKey != b.WireKey || string(a.Arguments) != string(b.Arguments) {
			t.Errorf("attempt %d carries %s %s, attempt %d %s %s", a.Attempt, a.WireKey, a.Arguments, b.Attempt, b.WireKey, b.Arguments)
		}
		if b.Token <= a.Token || b.Attempt != a.Attempt+1 {
			t.Errorf("attempt %d with token %d follows attempt %d with token %d", b.Attempt, b.Token, a.Attempt, a.Token)
		}
	}
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func join(list []string) string { return strings.Join(list, "; ") }
