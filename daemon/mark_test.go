package daemon_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/handler"
)

func child(dir string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	stuck := handler.Func(func(ctx context.Context, _ handler.Call) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	err := daemon.Run(ctx, settings(dir), daemon.Options{
		Tools:   []daemon.Tool{{Config: config.Tool{Name: "stuck", Effect: "idempotent", Timeout: time.Hour}, Handler: stuck}},
		Started: func() { fmt.Println("ready") },
	}, zap.NewNop())
	fmt.Println("ended:", err != nil)
	return 0
}

// failing is a daemon in another process, in which a sync fails after some that
// did not.
func failing(t *testing.T, dir string, after int) (lines *bufio.Scanner, kill func()) {
	t.Helper()
	inject := fmt.Sprintf("inject=fsync,fdatasync:error=EIO:when=%d+", after+1)
	if out, err := exec.Command("strace", "-o", "/dev/null", "-e", inject, "true").CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: a sync that fails: strace does not work here: %v: %s", err, out)
	}
	c := exec.Command("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", inject, os.Args[0])
	c.Env = append(os.Environ(), childEnv+"="+dir)
	in, err := c.StdinPipe() // its end ends the daemon
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	kill = func() {
		_ = in.Close()
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	t.Cleanup(kill)
	return bufio.NewScanner(out), kill
}

func marked(t *testing.T, dir string) bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "outbox.db.lock"))
	must(t, err)
	return strings.Contains(string(b), `"io_failed":true`)
}

// The daemon still waits for what runs, and may be killed before it has ended.
func TestTheNextStartIsToldOfAFailedSyncAtOnce(t *testing.T) {
	dir := t.TempDir()
	lines, _ := failing(t, dir, 15)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the daemon said %q", lines.Text())
	}
	transport := api.Socket(settings(dir).Listen.Socket)
	defer transport.CloseIdleConnections()
	client := api.NewClient(transport)
	for n := 0; ; n++ {
		if _, err := client.Submit(t.Context(), request("stuck", fmt.Sprint("key-", n)), 0); err != nil {
			break
		}
	}
	eventually(t, "the mark of an input/output error", func() bool { return marked(t, dir) })
	if _, err := client.Tools(t.Context()); errors.Is(err, api.ErrUnanswered) {
		t.Errorf("the daemon had ended before it was marked: %v", err)
	}
}

func TestTheNextStartIsToldOfAFailedSyncWhileOpening(t *testing.T) {
	dir := t.TempDir()
	lines, _ := failing(t, dir, 0)
	if !lines.Scan() || lines.Text() != "ended: true" {
		t.Fatalf("the daemon said %q", lines.Text())
	}
	if !marked(t, dir) {
		t.Error("the lock file does not say that the start met an input/output error")
	}
	w := run(t, settings(dir), daemon.Options{}).ready()
	if marked(t, dir) {
		t.Error("the mark stays after a start that copied the log")
	}
	must(t, w.end())
}
