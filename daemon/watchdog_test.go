package daemon

import (
	"context"
	"database/sql"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/lease"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/poller"
)

// watched is a daemon that a service manager watches.
type watched struct {
	*testing.T
	d       *daemon
	conn    *net.UnixConn
	mu      sync.Mutex // guards heard
	heard   []string
	release func() // what is stuck goes on
}

// watchLimit is what the service manager tolerates.
const watchLimit = time.Second

// watch starts a daemon of which stick has changed a part: that is stuck once
// blocked is closed, until it is released.
func watch(t *testing.T, stick func(d *daemon, stuck func())) *watched {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "1000000")
	t.Setenv("WATCHDOG_PID", "")
	cfg := config.Default()
	cfg.Database.Path, cfg.Listen.Socket = filepath.Join(dir, "outbox.db"), filepath.Join(dir, "s")
	w := &watched{T: t, conn: conn}
	free := make(chan struct{})
	w.release = sync.OnceFunc(func() { close(free) })
	if w.d, err = start(t.Context(), &cfg, Options{}, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	stick(w.d, func() { <-free })
	ctx, stop := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(w.listen)
	served := make(chan error, 1)
	go func() { served <- w.d.serve(ctx) }()
	t.Cleanup(func() {
		w.release()
		stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := w.d.end(); err != nil {
			t.Errorf("end: %v", err)
		}
		_ = conn.Close()
		over.Wait()
	})
	return w
}

func (w *watched) listen() {
	b := make([]byte, 4096)
	for {
		n, err := w.conn.Read(b)
		if err != nil {
			return // closed
		}
		w.mu.Lock()
		w.heard = append(w.heard, strings.Split(string(b[:n]), "\n")...)
		w.mu.Unlock()
	}
}

// hears waits until the service manager has been told a line that begins with
// this, after so many lines, and returns how many there are then.
func (w *watched) hears(line string, after int) int {
	w.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(20 * time.Second); ; {
		w.mu.Lock()
		for i := after; i < len(w.heard); i++ {
			if strings.HasPrefix(w.heard[i], line) {
				w.mu.Unlock()
				return i + 1
			}
		}
		w.mu.Unlock()
		select {
		case <-tick.C:
		case <-limit:
			w.mu.Lock()
			defer w.mu.Unlock()
			w.Fatalf("not told %q after line %d: %q", line, after, w.heard)
		}
	}
}

// quiet checks that the watchdog is not fed for its limit after so many
// lines.
func (w *watched) quiet(after int) {
	w.Helper()
	<-time.After(watchLimit)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.heard[after:] {
		if line == "WATCHDOG=1" {
			w.Errorf("the watchdog is fed although a loop is stuck: %q", w.heard[after:])
			return
		}
	}
}

// counted reports whether outboxd_loop_stuck says that this loop is.
func (w *watched) counted(loop string) bool {
	w.Helper()
	families, err := w.d.metrics.registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "outboxd_loop_stuck" && m.Label[0].GetValue() == loop {
				return m.GetGauge().GetValue() == 1
			}
		}
	}
	return false
}

func TestAStuckLoopStarvesTheWatchdog(t *testing.T) {
	for name, stick := range map[string]func(d *daemon, stuck func()){
		"poller": func(d *daemon, stuck func()) {
			d.poller = poller.New(d.ledger, d.keeper, d.poller.Work(), poller.Options{
				Concurrency: 1, PollInterval: time.Minute, Began: d.began,
				Check: func() error { stuck(); return nil },
			}, d.log)
		},
		"committer": func(d *daemon, stuck func()) {
			go func() { _ = d.ledger.Write(context.Background(), func(*ledger.Tx) error { stuck(); return nil }) }()
		},
		"keeper": func(d *daemon, stuck func()) {
			d.keeper = lease.NewKeeper(d.ledger, lease.Options{TTL: time.Minute, Heartbeat: time.Millisecond,
				Renewed: func(time.Duration, bool) { stuck() }}, d.log)
			d.keeper.Hold(entry.Held{ID: 1, Token: 1}, func(error) {})
		},
		"api": func(d *daemon, stuck func()) {
			d.api = api.New(api.Deps{Ledger: d.ledger, Poller: d.poller, Log: d.log,
				Access: api.NewAccess(config.Operators{}, nil), Live: func() error { stuck(); return nil }})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := watch(t, stick)
			after := w.hears("STATUS=stuck: "+name, 0)
			if !w.counted(name) {
				t.Error("no metric says that it is stuck")
			}
			w.quiet(after)
			w.release()
			w.hears("WATCHDOG=1", after)
		})
	}
}

func TestADaemonThatWaitsForTheFileIsNotStuck(t *testing.T) {
	w := watch(t, func(*daemon, func()) {})
	w.hears("READY=1", 0)
	db, err := sql.Open("sqlite", "file:"+w.d.cfg.Database.Path+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	after := w.hears("WATCHDOG=1", 0)
	for began := time.Now(); time.Since(began) < 3*watchLimit; {
		after = w.hears("WATCHDOG=1", after)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.heard {
		if strings.HasPrefix(line, "STATUS=stuck") {
			t.Errorf("it says %q while another process has the file's lock", line)
		}
	}
}
