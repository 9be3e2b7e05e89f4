package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/projection"
)

// effect is what a local tool does: a row in the application's table, in the
// transaction that records the receipt.
var effect = config.SQL{Statements: []string{`INSERT INTO job (ref, seq) VALUES (:status_ref, :seq) RETURNING id AS job_id`}}

// drainLocal drains local effects. With Session each operation names a turn, so that
// its settle enqueues a projection, which stays where it is.
func drainLocal(ctx context.Context, s spec) (m metrics, err error) {
	path, err := s.freshFile()
	if err != nil {
		return nil, err
	}
	e, err := openEngine(ctx, path, "local")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(e.fillLocal(ctx, s), e.ledger.Close()); err != nil {
		return nil, err
	}
	if e, err = openLocalEngine(ctx, path); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.ledger.Close()) }()
	pair, err := handler.Build(config.Tool{Name: "noop", Effect: "local", SQL: &effect})
	if err != nil {
		return nil, err
	}
	c := newCountdown(s.N)
	r := s.begin()
	stop := e.workWith(ctx, pair, c.one)
	waited := c.wait(ctx)
	m = r.rates(s.N)
	e.batches.into(m)
	return m, errors.Join(waited, stop(), e.delivered(ctx, s.N), e.effects(ctx, s))
}

// openLocalEngine is openEngine of a file whose ends are told to sessions.
func openLocalEngine(ctx context.Context, path string) (*engine, error) {
	reg, err := registry(tool("noop", "local"))
	if err != nil {
		return nil, fmt.Errorf("register tool: %w", err)
	}
	q, err := projection.NewEnqueuer()
	if err != nil {
		return nil, err
	}
	e := &engine{registry: reg}
	e.ledger, err = ledger.Open(ctx, path, ledger.Options{Observe: e.batches.add, Ended: func(tx *ledger.Tx, ids []int64) error {
		_, err := q.Ended(tx, ids)
		return err
	}})
	if err != nil {
		return nil, fmt.Errorf("open file: %w", err)
	}
	return e, nil
}

func (e *engine) fillLocal(ctx context.Context, s spec) error {
	err := e.ledger.Write(ctx, func(tx *ledger.Tx) error {
		if _, err := tx.Exec(`CREATE TABLE job (id INTEGER PRIMARY KEY, ref TEXT NOT NULL, seq INTEGER NOT NULL)`); err != nil {
			return err
		}
		_, err := projection.Open(tx, "acme", "shop", "s")
		return err
	})
	if err != nil {
		return fmt.Errorf("make tables: %w", err)
	}
	for from := 0; from < s.N; from += fillBatch {
		err := e.ledger.Write(ctx, func(tx *ledger.Tx) error {
			for i := from; i < min(from+fillBatch, s.N); i++ {
				r, err := request("noop", i, 0)
				if err != nil {
					return err
				}
				if s.Session {
					r.Session, r.Turn = "s", 1
				}
				p, err := intake.Prepare(e.registry, r)
				if err != nil {
					return err
				}
				if _, err := p.Accept(tx); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	return nil
}

// effects is an error unless there are as many as operations, and as many
// projections as operations that name a turn.
func (e *engine) effects(ctx context.Context, s spec) error {
	var jobs, projections int
	err := e.ledger.Read(ctx, func(v *ledger.View) error {
		return v.One(`SELECT (SELECT count(*) FROM job), (SELECT count(*) FROM outbox_operation WHERE parent IS NOT NULL)`).Scan(&jobs, &projections)
	})
	want := 0
	if s.Session {
		want = s.N
	}
	if err == nil && (jobs != s.N || projections != want) {
		err = fmt.Errorf("%d effects and %d projections, not %d and %d", jobs, projections, s.N, want)
	}
	return err
}
