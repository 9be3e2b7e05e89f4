package lease_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/outboxd/outboxd/lease"
)

func sharedLock(t *testing.T, path string) *lease.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l, err := lease.Acquire(ctx, path, lease.Shared, lease.Holder{PID: 1, Command: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Unlock() })
	return l
}

// TestTheLockFileRemembersHowFarTheDatabaseHasCome: neither end sinks, another
// database begins anew, and the next holder's mark leaves it alone.
func TestTheLockFileRemembersHowFarTheDatabaseHasCome(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	a, b := sharedLock(t, path), sharedLock(t, path)
	for _, step := range []struct {
		by             *lease.Lock
		lineage        string
		floor, ceiling int64
		want           lease.Sidecar
	}{
		{a, "one", 10, 50, lease.Sidecar{Lineage: "one", Floor: 10, Ceiling: 50}},
		{b, "one", 5, 70, lease.Sidecar{Lineage: "one", Floor: 10, Ceiling: 70}},
		{a, "one", 60, 60, lease.Sidecar{Lineage: "one", Floor: 60, Ceiling: 70}},
		{b, "two", 1, 2, lease.Sidecar{Lineage: "two", Floor: 1, Ceiling: 2}},
	} {
		if err := step.by.Reserve(step.lineage, step.floor, step.ceiling); err != nil {
			t.Fatal(err)
		}
		for _, l := range []*lease.Lock{a, b} {
			if got, err := l.Sidecar(); err != nil || got != step.want {
				t.Errorf("after %q %d %d: %+v, %v; want %+v", step.lineage, step.floor, step.ceiling, got, err, step.want)
			}
		}
	}
	if err := a.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := b.Unlock(); err != nil {
		t.Fatal(err)
	}
	c, err := lease.Acquire(t.Context(), path, lease.Exclusive, lease.Holder{PID: 1, Command: "run"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Unlock() }()
	if err := c.SetFailed(true); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Sidecar(); err != nil || got != (lease.Sidecar{Lineage: "two", Floor: 1, Ceiling: 2}) {
		t.Errorf("the next holder finds %+v, %v", got, err)
	}
	if err := c.Settle("two", 1); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Sidecar(); err != nil || got != (lease.Sidecar{Lineage: "two", Floor: 1, Ceiling: 1}) {
		t.Errorf("settled by the only one who may: %+v, %v", got, err)
	}
}
