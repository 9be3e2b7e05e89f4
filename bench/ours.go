package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/lease"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/poller"
)

// nowhere is where nothing listens: it is named, but never asked.
const nowhere = "http://127.0.0.1:9/"

// tool that does nothing, in as many slots as there are.
func tool(name, effect string) config.Tool {
	t := config.Tool{Name: name, Effect: effect, Concurrency: slots}
	if effect == "queryable" {
		t.Query = &config.Query{HTTP: &config.HTTP{URL: nowhere + "{key}"}}
	}
	return t
}

func registry(tools ...config.Tool) (*contract.Registry, error) {
	defaults := config.Default()
	complete := make([]config.Tool, len(tools))
	for i, t := range tools {
		var err error
		if complete[i], err = defaults.Tool(t); err != nil {
			return nil, err
		}
	}
	return contract.NewRegistry(complete)
}

// request carries what the yardstick carries or, with size, that many bytes.
func request(tool string, seq, size int) (intake.Request, error) {
	j := newJob(seq)
	if size > 0 {
		j.Pad = strings.Repeat("x", max(0, size-len(`{"seq":1234567,"pad":""}`)))
	}
	arguments, err := json.Marshal(j)
	scope := contract.Scope{Tenant: "acme", Subject: "shop", Tool: tool, Key: fmt.Sprintf("order-%012d", seq)}
	return intake.Request{Scope: scope, Arguments: arguments}, err
}

// engine is what a daemon has without its socket.
type engine struct {
	ledger   *ledger.Ledger
	batches  batches
	registry *contract.Registry
	poller   *poller.Poller // nil until work
}

func openEngine(ctx context.Context, path, effect string) (*engine, error) {
	reg, err := registry(tool("noop", effect))
	if err != nil {
		return nil, fmt.Errorf("register tool: %w", err)
	}
	e := &engine{registry: reg}
	e.ledger, err = ledger.Open(ctx, path, ledger.Options{Create: true, Observe: e.batches.add})
	if err != nil {
		return nil, fmt.Errorf("open file: %w", err)
	}
	return e, nil
}

// batches is what the committer says of its commits.
type batches struct{ n, closures, commit atomic.Int64 }

func (b *batches) add(closures int, commit time.Duration) {
	b.n.Add(1)
	b.closures.Add(int64(closures))
	b.commit.Add(int64(commit))
}

func (b *batches) into(m metrics) {
	n := float64(max(1, b.n.Load()))
	m["batch"], m["commit_ms"] = float64(b.closures.Load())/n, milliseconds(time.Duration(b.commit.Load()))/n
}

// accept is one submit, as the interface does it.
func (e *engine) accept(ctx context.Context, seq int) error {
	r, err := request("noop", seq, 0)
	if err != nil {
		return err
	}
	p, err := intake.Prepare(e.registry, r)
	if err != nil {
		return err
	}
	err = e.ledger.Write(ctx, func(tx *ledger.Tx) error {
		_, err := p.Accept(tx)
		return err
	})
	if e.poller != nil {
		e.poller.Wake()
	}
	return err
}

// fill accepts n operations, many in each transaction.
func fill(ctx context.Context, path, effect string, n int) (err error) {
	e, err := openEngine(ctx, path, effect)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.ledger.Close()) }()
	for from := 0; from < n; from += fillBatch {
		if err := e.acceptMany(ctx, "noop", from, min(fillBatch, n-from), time.Time{}); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	return nil
}

func (e *engine) acceptMany(ctx context.Context, tool string, from, n int, notBefore time.Time) error {
	prepared, err := e.prepareMany(tool, from, n, notBefore)
	if err != nil {
		return err
	}
	return e.ledger.Write(ctx, func(tx *ledger.Tx) error {
		for _, p := range prepared {
			if _, err := p.Accept(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

func (e *engine) prepareMany(tool string, from, n int, notBefore time.Time) ([]*intake.Prepared, error) {
	prepared := make([]*intake.Prepared, n)
	for i := range prepared {
		r, err := request(tool, from+i, 0)
		if err != nil {
			return nil, err
		}
		r.NotBefore = notBefore
		if prepared[i], err = intake.Prepare(e.registry, r); err != nil {
			return nil, err
		}
	}
	return prepared, nil
}

// work starts the loops of a daemon. The function returned ends them.
func (e *engine) work(ctx context.Context, do handler.Func, settled func()) (stop func() error) {
	return e.workWith(ctx, handler.Pair{Handler: do, Asker: never{}}, settled)
}

func (e *engine) workWith(ctx context.Context, pair handler.Pair, settled func()) (stop func() error) {
	log := zap.NewNop()
	ctx, cancel := context.WithCancel(ctx)
	keeper := lease.NewKeeper(e.ledger, lease.Options{TTL: 30 * time.Second, Heartbeat: 10 * time.Second}, log)
	work := &poller.Work{Registry: e.registry, Handlers: map[string]handler.Pair{"noop": pair}}
	e.poller = poller.New(e.ledger, keeper, work, poller.Options{Concurrency: slots, PollInterval: time.Second,
		TookOver: true, Check: e.ledger.Check, Observer: observer{settled}}, log)
	var loops errgroup.Group
	loops.Go(func() error { return keeper.Run(ctx) })
	loops.Go(func() error { return e.poller.Watch(ctx) })
	loops.Go(func() error { return e.poller.Run(ctx, context.WithoutCancel(ctx)) })
	return func() error {
		cancel()
		return loops.Wait()
	}
}

// never is asked nothing: no answer is lost here.
type never struct{}

func (never) Ask(context.Context, handler.Call) handler.Answer {
	return handler.Answer{Found: handler.NoAnswer}
}

// observer counts what is durably settled.
type observer struct{ settled func() }

func (o observer) Settled(string)                      { o.settled() }
func (observer) Attempt(string, string, time.Duration) {}
func (observer) Stale(string)                          {}
func (observer) Stepped(time.Duration)                 {}
func (observer) Claimed(string, time.Duration)         {}
func (observer) TookIn(int, int, int)                  {}
func (observer) Again(string, entry.Effect, bool)      {}

func nothing(context.Context, handler.Call) ([]byte, error) { return receiptBody, nil }

func drainOurs(ctx context.Context, s spec) (m metrics, err error) {
	path, err := s.freshFile()
	if err != nil {
		return nil, err
	}
	if s.Done > 0 {
		if err := copyFile(s.template(s.Done), path); err != nil {
			return nil, err
		}
	}
	if err := fill(ctx, path, s.Effect, s.N); err != nil {
		return nil, err
	}
	e, err := openEngine(ctx, path, s.Effect)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.ledger.Close()) }()
	c := newCountdown(s.N)
	r := s.begin()
	stop := e.work(ctx, nothing, c.one)
	waited := c.wait(ctx)
	m = r.rates(s.N)
	e.batches.into(m)
	return m, errors.Join(waited, stop(), e.delivered(ctx, s.N+s.Done))
}

// delivered is an error unless the file holds exactly n receipts.
func (e *engine) delivered(ctx context.Context, n int) error {
	var got int
	err := e.ledger.Read(ctx, func(v *ledger.View) error {
		return v.One(`SELECT count(*) FROM outbox_receipt`).Scan(&got)
	})
	if err == nil && got != n {
		err = fmt.Errorf("%d receipts, not %d", got, n)
	}
	return err
}

func acceptOurs(ctx context.Context, s spec) (m metrics, err error) {
	path, err := s.freshFile()
	if err != nil {
		return nil, err
	}
	e, err := openEngine(ctx, path, s.Effect)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.ledger.Close()) }()
	if m, err = s.submit(ctx, e.accept); err == nil {
		e.batches.into(m)
	}
	return m, err
}

func latencyOurs(ctx context.Context, s spec) (m metrics, err error) {
	path, err := s.freshFile()
	if err != nil {
		return nil, err
	}
	e, err := openEngine(ctx, path, s.Effect)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.ledger.Close()) }()
	began := make(chan time.Time, 1)
	stop := e.work(ctx, func(context.Context, handler.Call) ([]byte, error) {
		began <- time.Now()
		return receiptBody, nil
	}, func() {})
	defer func() { err = errors.Join(err, stop()) }()
	return s.oneAtATime(ctx, began, e.accept)
}
