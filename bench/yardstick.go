package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// What limit.go needs of the programme that it comes from. It is taken over
// byte for byte: the least row work of an outbox with leases and a fence, with
// a group commit, and nothing of what makes it safe to use.

// job is the payload, about 100 bytes. outboxd carries the same bytes.
type job struct {
	Seq int    `json:"seq"`
	Pad string `json:"pad"`
}

var pad = strings.Repeat("x", 80)

func newJob(seq int) job { return job{Seq: seq, Pad: pad} }

// env is what the yardstick is opened with.
type env struct{ path string }

// openSQLite opens the file as durably as outboxd does: WAL, synchronous=FULL
// and psow=0.
func (e *env) openSQLite(conns int, _ string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+e.path+"?psow=0&_pragma=busy_timeout(5000)"+
		"&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, db.Ping()
}

var yardstickErrors atomic.Int64

func noteError(text string) {
	yardstickErrors.Add(1)
	fmt.Fprintln(os.Stderr, "yardstick:", text)
}

func openYardstick(ctx context.Context, path string) (*limitPeer, error) {
	p := &limitPeer{}
	if err := p.open(ctx, &env{path: path}); err != nil {
		return nil, fmt.Errorf("open yardstick: %w", err)
	}
	return p, nil
}

// fill makes n jobs pending and closes the file, so that its log is copied
// before anything is measured.
func fillYardstick(ctx context.Context, path string, n int) error {
	p, err := openYardstick(ctx, path)
	if err != nil {
		return err
	}
	defer p.close()
	for i := 0; i < n; i += fillBatch {
		if err := p.enqueueBatch(ctx, i, min(fillBatch, n-i)); err != nil {
			return fmt.Errorf("fill yardstick: %w", err)
		}
	}
	return nil
}

func drainYardstick(ctx context.Context, s spec) (metrics, error) {
	path, err := s.freshFile()
	if err != nil {
		return nil, err
	}
	if err := fillYardstick(ctx, path, s.N); err != nil {
		return nil, err
	}
	p, err := openYardstick(ctx, path)
	if err != nil {
		return nil, err
	}
	defer p.close()
	count, err := countingConn(path)
	if err != nil {
		return nil, err
	}
	defer count.Close()
	c := newCountdown(s.N)
	run := s.begin()
	if err := p.start(ctx, slots, func(int) { c.one() }); err != nil {
		return nil, err
	}
	defer p.stop()
	if err := c.wait(ctx); err != nil {
		return nil, err
	}
	if err := emptied(ctx, count, p.pendingSQL()); err != nil {
		return nil, err
	}
	return run.rates(s.N), yardstickFailed()
}

// countingConn reads beside the engine.
func countingConn(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=query_only(1)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, db.Ping()
}

// emptied waits until the last handler's end is durable.
func emptied(ctx context.Context, db *sql.DB, query string) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		var left int
		if err := db.QueryRowContext(ctx, query).Scan(&left); err != nil {
			return fmt.Errorf("count pending: %w", err)
		}
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d left: %w", left, ctx.Err())
		case <-tick.C:
		}
	}
}

func acceptYardstick(ctx context.Context, s spec) (metrics, error) {
	path, err := s.freshFile()
	if err != nil {
		return nil, err
	}
	p, err := openYardstick(ctx, path)
	if err != nil {
		return nil, err
	}
	defer p.close()
	m, err := s.submit(ctx, func(ctx context.Context, seq int) error { return p.enqueue(ctx, seq) })
	if err != nil {
		return nil, err
	}
	return m, yardstickFailed()
}

func latencyYardstick(ctx context.Context, s spec) (metrics, error) {
	path, err := s.freshFile()
	if err != nil {
		return nil, err
	}
	p, err := openYardstick(ctx, path)
	if err != nil {
		return nil, err
	}
	defer p.close()
	began := make(chan time.Time, 1)
	if err := p.start(ctx, slots, func(int) { began <- time.Now() }); err != nil {
		return nil, err
	}
	defer p.stop()
	return s.oneAtATime(ctx, began, func(ctx context.Context, seq int) error { return p.enqueue(ctx, seq) })
}

func yardstickFailed() error {
	if n := yardstickErrors.Load(); n > 0 {
		return fmt.Errorf("yardstick: %d errors", n)
	}
	return nil
}
