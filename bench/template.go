package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/lease"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/poller"
)

// schemaFile is part of a template's name: one of another schema is of no use.
const schemaFile = "../ledger/schema.sql"

// template names the file that holds done delivered operations.
func (s spec) template(done int) string {
	schema, err := os.ReadFile(schemaFile)
	if err != nil {
		schema = []byte(err.Error())
	}
	sum := sha256.Sum256(schema)
	return filepath.Join(s.Dir, "templates", fmt.Sprintf("%x-%d.db", sum[:4], done))
}

// makeTemplates makes the file of s.Done delivered operations, unless it is
// there.
func makeTemplates(ctx context.Context, s spec) (metrics, error) {
	name := s.template(s.Done)
	if _, err := os.Stat(name); err == nil {
		return metrics{}, nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	path, err := s.freshFile()
	if err != nil {
		return nil, err
	}
	if err := fillDelivered(ctx, path, s.Done); err != nil {
		return nil, fmt.Errorf("make template: %w", err)
	}
	return metrics{}, os.Rename(path, name)
}

// delivered keys are apart from those that are measured later.
const deliveredFrom = 1_000_000_000

func fillDelivered(ctx context.Context, path string, n int) (err error) {
	e, err := openEngine(ctx, path, "idempotent")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.ledger.Close()) }()
	for from := 0; from < n; from += fillBatch {
		prepared, err := e.prepareMany("noop", deliveredFrom+from, min(fillBatch, n-from), time.Time{})
		if err != nil {
			return err
		}
		err = e.ledger.Write(ctx, func(tx *ledger.Tx) error { return deliverAll(tx, prepared) })
		if err != nil {
			return err
		}
	}
	return nil
}

// deliverAll leaves the rows that accepting, claiming and delivering leave.
func deliverAll(tx *ledger.Tx, prepared []*intake.Prepared) error {
	ids := make([]int64, len(prepared))
	for i, p := range prepared {
		a, err := p.Accept(tx)
		if err != nil {
			return err
		}
		ids[i] = a.ID
	}
	ops, err := intake.Load(tx, ids)
	if err != nil {
		return err
	}
	token, err := tx.Tokens(len(ids))
	if err != nil {
		return err
	}
	for i, id := range ids {
		if err := deliverOne(tx, ops[id], token+int64(i)); err != nil {
			return err
		}
	}
	return nil
}

func deliverOne(tx *ledger.Tx, op *contract.Operation, token int64) error {
	l := entry.Lease{Token: token, Until: tx.Now().Add(time.Minute), Over: tx.Now().Add(time.Minute)}
	held, err := entry.Take(tx, entry.Due{ID: op.ID, Round: 1}, l, true)
	if err != nil {
		return err
	}
	result, err := contract.Canonical(receiptBody)
	if err != nil {
		return err
	}
	sum := contract.ResultDigest(result)
	return entry.Deliver(tx, held, entry.Receipt{Result: result, ResultSum: sum, Binding: op.Bind(sum, "").Digest(), How: entry.Fresh})
}

const (
	later  = 100    // operations that are due in an hour
	paused = 10_000 // due operations of a paused tool
)

// fillIdle adds to the file what an idle daemon must leave alone.
func fillIdle(ctx context.Context, path string) (err error) {
	e, err := openEngine(ctx, path, "idempotent")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.ledger.Close()) }()
	if e.registry, err = registry(tool("noop", "idempotent"), tool("halted", "idempotent")); err != nil {
		return err
	}
	work := &poller.Work{Registry: e.registry}
	keeper := lease.NewKeeper(e.ledger, lease.Options{}, zap.NewNop())
	p := poller.New(e.ledger, keeper, work, poller.Options{Concurrency: 1}, zap.NewNop())
	if err := p.Pause(ctx, "halted", "bench"); err != nil {
		return err
	}
	if err := e.acceptMany(ctx, "noop", 0, later, time.Now().Add(time.Hour)); err != nil {
		return err
	}
	for from := 0; from < paused; from += fillBatch {
		if err := e.acceptMany(ctx, "halted", from, fillBatch, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}
