package api_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/lease"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
	"github.com/outboxd/outboxd/poller"
)

// The tools of a world, one for each effect class that can be configured.
const (
	idempotent = "send_mail"
	queryable  = "refund_order"
	opaque     = "ring_bell"
)

// world is a file, a poller that does not run yet and a daemon's socket.
type world struct {
	t      testing.TB
	ledger *ledger.Ledger
	work   *poller.Work
	poller *poller.Poller
	keeper *lease.Keeper
	api    *api.API
	socket string
	client *api.Client            // over the socket
	logged *observer.ObservedLogs // what the API called an error
}

// script is what the tools of a world answer; nil: nothing may be called.
type script struct {
	run handler.Func
	ask asker
}

type asker func(context.Context, handler.Call) handler.Answer

func (a asker) Ask(ctx context.Context, c handler.Call) handler.Answer { return a(ctx, c) }

func newWorld(t testing.TB, s script) *world {
	t.Helper()
	return newWorldOn(t, s, ledgertest.Open(t))
}

func newWorldOn(t testing.TB, s script, l *ledger.Ledger) *world {
	t.Helper()
	w := &world{t: t, ledger: l}
	if s.run == nil {
		s.run = func(context.Context, handler.Call) ([]byte, error) { return nil, errors.New("not expected") }
	}
	pair := handler.Pair{Handler: s.run}
	asking := pair
	if s.ask != nil {
		asking.Asker = s.ask
	}
	w.work = &poller.Work{
		Registry: ledgertest.Registry(t, ledgertest.Tool(idempotent, entry.Idempotent),
			ledgertest.Tool(queryable, entry.Queryable), ledgertest.Tool(opaque, entry.Opaque)),
		Handlers: map[string]handler.Pair{idempotent: pair, queryable: asking, opaque: pair},
	}
	log := zap.NewNop()
	errorsOnly, logged := observer.New(zap.ErrorLevel)
	w.logged = logged
	w.keeper = lease.NewKeeper(w.ledger, lease.Options{TTL: 30 * time.Second, Heartbeat: 10 * time.Second}, log)
	w.poller = poller.New(w.ledger, w.keeper, w.work,
		poller.Options{Concurrency: 8, PollInterval: time.Second, Observer: events{w}}, log)
	w.api = api.New(api.Deps{
		Ledger: w.ledger, Poller: w.poller, Log: zap.New(errorsOnly), Version: "test",
		Access: api.NewAccess(config.Operators{UIDs: []int{os.Getuid()}}, nil),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "outbox_up 1\n")
		}),
	})
	w.serve()
	return w
}

type events struct{ w *world }

func (events) Attempt(string, string, time.Duration) {}
func (events) Stale(string)                          {}
func (events) Stepped(time.Duration)                 {}
func (events) Claimed(string, time.Duration)         {}
func (events) TookIn(int, int, int)                  {}
func (events) Again(string, entry.Effect, bool)      {}
func (e events) Settled(ref string)                  { e.w.api.Settled(ref) }

// serve answers on a socket until the test ends.
func (w *world) serve() {
	w.t.Helper()
	w.socket = filepath.Join(shortDir(w.t), "s")
	l, err := api.Listen(w.socket, 0o660)
	if err != nil {
		w.t.Fatal(err)
	}
	w.during(func(ctx context.Context) error { return api.Serve(ctx, l, w.api, zap.NewNop()) })
	transport := api.Socket(w.socket)
	w.t.Cleanup(transport.CloseIdleConnections)
	w.client = api.NewClient(transport)
}

// run lets the poller and the keeper work until the test ends.
func (w *world) run() {
	w.during(w.keeper.Run)
	w.during(func(ctx context.Context) error { return w.poller.Run(ctx, context.WithoutCancel(ctx)) })
}

// during runs fn beside the test and waits for it at the end.
func (w *world) during(fn func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- fn(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("ended with %v", err)
		}
	})
}

// shortDir: a socket's path has 107 bytes at most.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// accept takes an operation past the socket.
func (w *world) accept(tool, key string) intake.Accepted {
	w.t.Helper()
	return ledgertest.Accept(w.t, w.ledger, w.work.Registry, ledgertest.Request(tool, key))
}

// place brings an operation into a state, by the transitions that lead there.
func (w *world) place(tool, key, state string) string {
	w.t.Helper()
	a := w.accept(tool, key)
	ledgertest.Write(w.t, w.ledger, func(tx *ledger.Tx) error { return move(tx, a.ID, state) })
	return a.StatusRef
}

func move(tx *ledger.Tx, id int64, state string) error {
	switch state {
	case "pending":
		return nil
	case "claimed":
		_, err := take(tx, id, false)
		return err
	case "sending":
		_, err := take(tx, id, true)
		return err
	case "waiting":
		h, err := take(tx, id, false)
		if err == nil {
			_, err = h.Reapprove(tx, false, entry.Evidence{Kind: entry.Blocked, Phase: "claimed", Class: "refused", Code: "expired"})
		}
		return err
	case "discarded":
		if err := move(tx, id, "dead"); err != nil {
			return err
		}
		return entry.Drop(tx, entry.Discard, id, entry.Dead, "discarded")
	case "receipt_reconciled", "resolved":
		if err := move(tx, id, "unknown"); err != nil {
			return err
		}
		return reviewed(tx, id, state)
	}
	h, err := take(tx, id, true)
	if err != nil {
		return err
	}
	return end(tx, h, state)
}

func take(tx *ledger.Tx, id int64, marked bool) (entry.Held, error) {
	d, err := entry.Get(tx, id)
	if err != nil {
		return entry.Held{}, err
	}
	token, err := tx.Tokens(1)
	if err != nil {
		return entry.Held{}, err
	}
	until := tx.Now().Add(time.Minute)
	return entry.Take(tx, d, entry.Lease{Token: token, Until: until, Over: until}, marked)
}

func end(tx *ledger.Tx, h entry.Held, state string) error {
	ev := entry.Evidence{Kind: entry.Outcome, Phase: "sending", Class: "rejected", Code: "http_422", Excerpt: "no"}
	switch state {
	case "delivered":
		r, err := receipt(tx, h.ID, []byte(`{"mail":"<7>"}`), entry.Fresh)
		if err != nil {
			return err
		}
		return entry.Deliver(tx, h, r)
	case "dead":
		_, err := h.Nothing(tx, entry.Nothing{Event: entry.Reject, Evidence: ev, GiveUp: "rejected"})
		return err
	case "unknown", "asking":
		doubt := entry.Doubt{Event: entry.Maybe, To: entry.Unknown, Reason: "unproven", Evidence: ev, Over: true}
		if state == "asking" {
			doubt.At = tx.Now().Add(time.Hour)
		}
		_, err := h.Doubt(tx, doubt)
		return err
	}
	return fmt.Errorf("no such state %q", state)
}

func reviewed(tx *ledger.Tx, id int64, state string) error {
	d, err := entry.Get(tx, id)
	if err != nil {
		return err
	}
	r, err := receipt(tx, id, nil, entry.How(state))
	if err != nil || state == "resolved" {
		return errors.Join(err, entry.ResolveApplied(tx, d, r))
	}
	token, err := tx.Tokens(1)
	if err != nil {
		return err
	}
	h, err := entry.Question(tx, d, entry.Lease{Token: token, Until: tx.Now().Add(time.Minute)}, true)
	if err != nil {
		return err
	}
	return entry.Deliver(tx, h, r)
}

func receipt(tx *ledger.Tx, id int64, result []byte, how entry.How) (entry.Receipt, error) {
	ops, err := intake.Load(tx, []int64{id})
	if err != nil {
		return entry.Receipt{}, err
	}
	sum := contract.ResultDigest(result)
	return entry.Receipt{Result: result, ResultSum: sum, Binding: ops[id].Bind(sum, "").Digest(), How: how}, nil
}

// as is a client in this process, with another uid.
func (w *world) as(uid int) *api.Client { return api.NewClient(api.Local(w.api, uid)) }

// aCase is a valid case.
func aCase(tool, key string) api.Case {
	return api.Case{
		Principal: &api.Principal{Tenant: "acme", Subject: "shop"}, IdempotencyKey: key,
		Call: api.CaseCall{Tool: tool, Arguments: []byte(`{"order":17}`)},
	}
}

// wants fails unless err is the problem with this code and status.
func wants(t testing.TB, what string, err error, status int, code string) {
	t.Helper()
	_ = refused(t, what, err, status, code)
}

// refused is wants, for a test that looks at the problem.
func refused(t testing.TB, what string, err error, status int, code string) *api.Problem {
	t.Helper()
	p, ok := errors.AsType[*api.Problem](err)
	if !ok {
		t.Fatalf("%s: got error %v, want problem %s", what, err, code)
	}
	if p.Code != code || p.Status != status {
		t.Errorf("%s: got %d %s (%v), want %d %s", what, p.Status, p.Code, p, status, code)
	}
	return p
}

// head is an answer without its body.
type head struct {
	status int
	header http.Header
}

// raw sends a request as it is and returns what came back.
func (w *world) raw(method, path string, header map[string]string, body string) (head, string) {
	w.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, "http://outboxd"+path, reader)
	if err != nil {
		w.t.Fatal(err)
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	if host := header["Host"]; host != "" {
		r.Host = host
	}
	transport := api.Socket(w.socket)
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(r)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return head{res.StatusCode, res.Header}, string(b)
}

// lockOut holds the write lock as another process would.
func (w *world) lockOut() (unlock func()) {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.ledger.Path())
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := db.Conn(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := conn.ExecContext(context.Background(), `BEGIN IMMEDIATE`); err != nil {
		w.t.Fatal(err)
	}
	return func() {
		_, err := conn.ExecContext(context.Background(), `ROLLBACK`)
		if err := errors.Join(err, conn.Close(), db.Close()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// misplace moves the file away from under the ledger.
func (w *world) misplace() {
	w.t.Helper()
	if err := os.Rename(w.ledger.Path(), w.ledger.Path()+".moved"); err != nil {
		w.t.Fatal(err)
	}
}

// alter changes the file behind the API's back, and back again.
func (w *world) alter(statement, back string) (restore func()) {
	w.t.Helper()
	run := func(statement string) {
		ledgertest.Write(w.t, w.ledger, func(tx *ledger.Tx) error {
			_, err := tx.Exec(statement)
			return err
		})
	}
	run(statement)
	return func() { run(back) }
}
