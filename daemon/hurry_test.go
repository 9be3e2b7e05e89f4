package daemon_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/poller"
)

// Another process has the write lock and keeps it. Somebody in a hurry is not
// made to wait for it as long as a drain is.
func TestASecondSignalDoesNotWaitForAFileThatTakesNothing(t *testing.T) {
	calling := make(chan struct{})
	call := handler.Func(func(ctx context.Context, _ handler.Call) ([]byte, error) {
		close(calling)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	hurry := make(chan os.Signal, 1)
	cfg := settings(t.TempDir())
	w := run(t, cfg, daemon.Options{Hurry: hurry, Tools: []daemon.Tool{{
		Config: config.Tool{Name: "call", Effect: "opaque", Timeout: time.Hour}, Handler: call,
	}}}).ready()
	_, err := w.client.Submit(t.Context(), request("call", "order-17"), 0)
	must(t, err)
	<-calling
	db, err := sql.Open("sqlite", "file:"+cfg.Database.Path+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	must(t, err)
	defer func() { must(t, db.Close()) }()
	tx, err := db.Begin()
	must(t, err)
	defer func() { must(t, tx.Rollback()) }()
	w.stop()
	w.says("draining", 1)
	began := time.Now()
	hurry <- syscall.SIGTERM
	if err := w.over(); !errors.Is(err, poller.ErrUnrecorded) {
		t.Errorf("the daemon ended with %v, want %v", err, poller.ErrUnrecorded)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the stop took %s, want little more than a second", took)
	}
}
