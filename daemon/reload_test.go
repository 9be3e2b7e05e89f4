package daemon_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/handler"
)

// notified is a service manager's end of the notification socket.
func notified(t *testing.T) *net.UnixConn {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { _ = manager.Close() })
	t.Setenv("NOTIFY_SOCKET", socket)
	must(t, manager.SetReadDeadline(time.Now().Add(patience)))
	return manager
}

// heard is the next datagram.
func heard(t *testing.T, manager *net.UnixConn) string {
	t.Helper()
	b := make([]byte, 4096)
	n, err := manager.Read(b)
	must(t, err)
	return string(b[:n])
}

// reloadIs checks that the next two datagrams are a reload that ends like this.
func reloadIs(t *testing.T, manager *net.UnixConn, end string) {
	t.Helper()
	begins, ends := heard(t, manager), heard(t, manager)
	if !strings.HasPrefix(begins, "RELOADING=1\nMONOTONIC_USEC=") {
		t.Errorf("a reload begins with %q, want RELOADING=1 and the time", begins)
	}
	if ends != "READY=1\nSTATUS="+end {
		t.Errorf("a reload ends with %q, want READY=1 and the status %q", ends, end)
	}
}

var wrongConfig = &config.Problems{List: []config.Problem{
	{File: "outboxd.yaml", Line: 3, Column: 5, Path: "worker.concurrency", Found: `"many"`, Allowed: "a number"},
	{File: "outboxd.yaml", Line: 9, Path: "x", Found: "y", Allowed: "z"},
}}

const (
	good = "accepting and working"
	bad  = `config not reloaded, the old one stays: outboxd.yaml:3:5: worker.concurrency: found "many"; allowed: a number (and 1 more)`
)

func TestEveryReloadEndsWithReadyAndSaysWhatBecameOfIt(t *testing.T) {
	manager := notified(t)
	cfg := settings(t.TempDir())
	var mu sync.Mutex // guards broken
	broken := true
	hup := make(chan os.Signal, 1)
	w := run(t, cfg, daemon.Options{Reload: hup, Load: func() (*config.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		if broken {
			return nil, wrongConfig
		}
		next := *cfg
		next.Worker.PollInterval++
		return &next, nil
	}}).ready()
	if first := heard(t, manager); first != "READY=1\nSTATUS="+good {
		t.Fatalf("it is ready with %q", first)
	}
	hup <- syscall.SIGHUP
	reloadIs(t, manager, bad)
	_, err := w.client.Reload(t.Context())
	p, _ := errors.AsType[*api.Problem](err)
	if p == nil || p.Code != "CONFIG_INVALID" || len(p.Errors) != 2 || p.Errors[0].Path != "worker.concurrency" {
		t.Errorf("a reload of a wrong config is answered with %v, want CONFIG_INVALID and both problems", err)
	}
	reloadIs(t, manager, bad)
	mu.Lock()
	broken = false
	mu.Unlock()
	r, err := w.client.Reload(t.Context())
	if err != nil || len(r.Restart) != 1 || r.Restart[0] != "worker" {
		t.Errorf("got %+v, %v, want a reload that leaves the section worker to the next start", r, err)
	}
	reloadIs(t, manager, good)
	must(t, w.end())
}

func TestReloadsAtOnceFollowEachOther(t *testing.T) {
	manager := notified(t)
	cfg := settings(t.TempDir())
	began, goOn := make(chan struct{}, 2), make(chan struct{})
	w := run(t, cfg, daemon.Options{Load: func() (*config.Config, error) {
		began <- struct{}{}
		<-goOn
		return cfg, nil
	}}).ready()
	heard(t, manager) // READY=1
	answers := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := w.client.Reload(context.Background())
			answers <- err
		}()
	}
	<-began
	select {
	case <-began:
		t.Error("the second reload begins before the first one is over")
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	for range 2 {
		must(t, <-answers)
		reloadIs(t, manager, good)
	}
	must(t, w.end())
}

func TestAStopThatDrainsAsksForTimeAndFeedsTheWatchdog(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "200000")
	t.Setenv("WATCHDOG_PID", "")
	manager := notified(t)
	calling, answer := make(chan struct{}), make(chan struct{})
	w := run(t, settings(t.TempDir()), daemon.Options{Tools: []daemon.Tool{{
		Config: config.Tool{Name: "call", Effect: "opaque", Timeout: time.Hour},
		Handler: handler.Func(func(context.Context, handler.Call) ([]byte, error) {
			close(calling)
			<-answer
			return nil, nil
		}),
	}}}).ready()
	_, err := w.client.Submit(t.Context(), request("call", "order-17"), 0)
	must(t, err)
	<-calling
	w.stop()
	told(t, manager, "STOPPING=1")
	told(t, manager, "EXTEND_TIMEOUT_USEC=20000000")
	told(t, manager, "WATCHDOG=1")
	told(t, manager, "EXTEND_TIMEOUT_USEC=20000000") // again
	close(answer)
	must(t, w.over())
}
