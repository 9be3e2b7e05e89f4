package projection_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/lease"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
	"github.com/outboxd/outboxd/poller"
	"github.com/outboxd/outboxd/projection"
)

// world is a file with jobs that name turns, and the consumer that projects.
type world struct {
	t    *testing.T
	path string
	l    *ledger.Ledger
	reg  *contract.Registry
	jobs handler.Handler // nil: nobody works on them but the test
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, path: filepath.Join(t.TempDir(), "outbox.db")}
	w.reg = ledgertest.Registry(t, ledgertest.Tool("job", entry.Opaque), ledgertest.Tool("chat", entry.Opaque))
	w.open()
	return w
}

// open opens the file, as the next process does.
func (w *world) open() {
	w.t.Helper()
	q, err := projection.NewEnqueuer()
	if err != nil {
		w.t.Fatal(err)
	}
	w.l = ledgertest.OpenAt(w.t, w.path, ledger.Options{Ended: func(tx *ledger.Tx, ids []int64) error {
		_, err := q.Ended(tx, ids)
		return err
	}})
}

func (w *world) reopen() {
	w.t.Helper()
	if err := w.l.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.open()
}

func (w *world) write(fn func(*ledger.Tx) error) { w.t.Helper(); ledgertest.Write(w.t, w.l, fn) }

func (w *world) session(name string, owner ...string) {
	w.t.Helper()
	tenant := "acme"
	if len(owner) > 0 {
		tenant = owner[0]
	}
	w.write(func(tx *ledger.Tx) error { _, err := projection.Open(tx, tenant, "shop", name); return err })
}

// turn does something to a session of acme.
func (w *world) turn(name string, do func(*ledger.Tx, projection.Session) (projection.Session, error)) {
	w.t.Helper()
	w.write(func(tx *ledger.Tx) error {
		s, err := projection.Find(tx, "acme", "shop", name)
		if err != nil {
			return err
		}
		_, err = do(tx, s)
		return err
	})
}

func (w *world) interrupt(name string) {
	w.t.Helper()
	w.turn(name, func(tx *ledger.Tx, s projection.Session) (projection.Session, error) {
		return projection.Advance(tx, s, 0, projection.Interrupted)
	})
}

func (w *world) stop(name string) {
	w.t.Helper()
	w.turn(name, func(tx *ledger.Tx, s projection.Session) (projection.Session, error) {
		return projection.Stop(tx, s, 0)
	})
}

func request(key, session string, turn int64) intake.Request {
	r := ledgertest.Request("job", key)
	r.Session, r.Turn = session, turn
	return r
}

// begun is a job that is running: its request has left.
func (w *world) begun(r intake.Request) entry.Held {
	w.t.Helper()
	id := ledgertest.Accept(w.t, w.l, w.reg, r).ID
	return w.claim(id)
}

func (w *world) claim(id int64) (h entry.Held) {
	w.t.Helper()
	w.write(func(tx *ledger.Tx) error {
		token, err := tx.Tokens(1)
		if err != nil {
			return err
		}
		d, err := entry.Get(tx, id)
		if err != nil {
			return err
		}
		h, err = entry.Take(tx, d, entry.Lease{Token: token, Until: tx.Now().Add(time.Hour), Over: tx.Now()}, true)
		return err
	})
	return h
}

// completed records the job's result, as the consumer of results does.
func (w *world) completed(h entry.Held, result string) {
	w.t.Helper()
	w.write(func(tx *ledger.Tx) error { return w.deliver(tx, h, result) })
}

func (w *world) deliver(tx *ledger.Tx, h entry.Held, result string) error {
	ops, err := intake.Load(tx, []int64{h.ID})
	if err != nil {
		return err
	}
	sum := contract.ResultDigest([]byte(result))
	return entry.Deliver(tx, h, entry.Receipt{Result: []byte(result), ResultSum: sum,
		Binding: ops[h.ID].Bind(sum, "").Digest(), How: entry.Fresh})
}

// project runs the consumer of projections until there is nothing to do.
func (w *world) project() {
	w.t.Helper()
	stop := w.run()
	synctest.Wait()
	stop()
}

// run starts a poller with the built-in tool and, where jobs is set, the jobs'.
func (w *world) run() (stop func()) {
	w.t.Helper()
	defaults := config.Default()
	tool, err := projection.Declare(&defaults)
	if err != nil {
		w.t.Fatal(err)
	}
	tools, handlers := []config.Tool{tool}, map[string]handler.Pair{projection.ToolName: {BuiltIn: projection.Project}}
	if w.jobs != nil {
		job, err := defaults.Tool(ledgertest.Tool("job", entry.Opaque))
		if err != nil {
			w.t.Fatal(err)
		}
		tools, handlers["job"] = append(tools, job), handler.Pair{Handler: w.jobs}
	}
	reg, err := contract.NewRegistry(tools)
	if err != nil {
		w.t.Fatal(err)
	}
	keeper := lease.NewKeeper(w.l, lease.Options{TTL: time.Minute, Heartbeat: 20 * time.Second}, zap.NewNop())
	p := poller.New(w.l, keeper, &poller.Work{Registry: reg, Handlers: handlers},
		poller.Options{Concurrency: 8, PollInterval: 10 * time.Millisecond}, zap.NewNop())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, context.Background()) }()
	return func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, ledger.ErrClosed) {
			w.t.Errorf("poller: %v", err)
		}
	}
}

// history is which turns have a row, and what was decided, in the order of the
// decisions.
func (w *world) history(name string) (turns []int64, decisions []string) {
	w.t.Helper()
	ledgertest.Read(w.t, w.l, func(v *ledger.View) error {
		turns, decisions = []int64{}, []string{}
		return v.Each(func(r *ledger.Row) error {
			var target int64
			var decision string
			err := r.Scan(&target, &decision)
			if target != 0 {
				turns = append(turns, target)
			}
			decisions = append(decisions, decision)
			return err
		}, `SELECT COALESCE(h.target_turn, 0), h.decision FROM outbox_history AS h JOIN outbox_session AS s ON s.id = h.session
			WHERE s.session_id = ? ORDER BY h.id`, name)
	})
	return turns, decisions
}

func (w *world) want(name, want string) {
	w.t.Helper()
	turns, decisions := w.history(name)
	if got := fmt.Sprint(turns, " ", decisions); got != want {
		w.t.Errorf("session %s: got %s, want %s", name, got, want)
	}
}

func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	ledgertest.Read(w.t, w.l, func(v *ledger.View) error { return v.One(query, args...).Scan(&n) })
	return n
}

// drained waits until so many decisions are recorded.
func (w *world) drained(n int) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for w.count(`SELECT count(*) FROM outbox_history`) < n {
		select {
		case <-tick.C:
		case <-limit:
			w.t.Fatal("projections are left behind")
		}
	}
}
