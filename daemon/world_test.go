package daemon_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
)

// childEnv names a directory in which this binary is a daemon with a tool that
// never ends by itself.
const childEnv = "OUTBOXD_DAEMON_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

func settings(dir string) *config.Config {
	cfg := config.Default()
	cfg.Database.Path = filepath.Join(dir, "outbox.db")
	cfg.Listen.Socket = filepath.Join(dir, "sock")
	cfg.Operators.UIDs = []int{os.Getuid()}
	return &cfg
}

// world is a daemon in this process.
type world struct {
	*testing.T
	cfg     *config.Config
	logs    *observer.ObservedLogs
	client  *api.Client
	started chan struct{}
	ended   chan error
	stop    context.CancelFunc
}

// run starts a daemon and does not wait until it is ready.
func run(t *testing.T, cfg *config.Config, o daemon.Options) *world {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	w := &world{T: t, cfg: cfg, logs: logs, started: make(chan struct{}), ended: make(chan error, 1)}
	o.Started = func() { close(w.started) }
	transport := api.Socket(cfg.Listen.Socket)
	t.Cleanup(transport.CloseIdleConnections)
	w.client = api.NewClient(transport)
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.ended <- daemon.Run(ctx, cfg, o, zap.New(core))
	}()
	t.Cleanup(func() { stop(); <-over })
	return w
}

// ready waits until the daemon is.
func (w *world) ready() *world {
	w.Helper()
	select {
	case <-w.started:
	case err := <-w.ended:
		w.Fatalf("the daemon ended with %v", err)
	case <-time.After(patience):
		w.Fatalf("the daemon is not ready after %s", patience)
	}
	return w
}

// end stops the daemon and returns what it came to.
func (w *world) end() error {
	w.Helper()
	w.stop()
	return w.over()
}

// over waits until the daemon has ended.
func (w *world) over() error {
	w.Helper()
	select {
	case err := <-w.ended:
		return err
	case <-time.After(patience):
		w.Fatalf("the daemon has not ended after %s", patience)
		return nil
	}
}

// says waits until the daemon has logged a message n times.
func (w *world) says(message string, n int) []observer.LoggedEntry {
	w.Helper()
	var found []observer.LoggedEntry
	eventually(w.T, message, func() bool {
		found = w.logs.FilterMessage(message).All()
		return len(found) >= n
	})
	return found
}

func request(tool, key string) api.Case {
	return api.Case{
		Principal: &api.Principal{Tenant: "acme", Subject: "test"}, IdempotencyKey: key,
		Call: api.CaseCall{Tool: tool, Arguments: jsontext.Value("{}")},
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
