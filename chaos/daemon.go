package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxd/outboxd/api"
)

// ErrEnded says that a daemon ended before it was ready.
var ErrEnded = errors.New("the daemon ended before it was ready")

// Daemon is how a real daemon is started, again and again.
type Daemon struct {
	Argv   []string // the binary, and what stands before it; "run" and the flags follow
	Config string   // path of its configuration
	Args   []string // more flags of run
	Socket string   // where that says it listens
	Log    string   // a file that its stderr is appended to
}

// Running is a daemon that has been started.
type Running struct {
	*Process
	daemon Daemon
	http   http.Client
}

// Armed is the daemon that breaks as the plan says.
func (d Daemon) Armed(plan string) Daemon {
	d.Args = append(slices.Clone(d.Args), "--chaos-arm", plan)
	return d
}

// Start starts it and does not wait for anything.
func (d Daemon) Start() (*Running, error) {
	log, err := os.OpenFile(d.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own
	args := slices.Concat(d.Argv[1:], []string{"run", "--config", d.Config}, d.Args)
	cmd := exec.Command(d.Argv[0], args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, Environment(os.Environ())
	p, err := Start(cmd)
	if err != nil {
		return nil, err
	}
	return &Running{Process: p, daemon: d, http: http.Client{Transport: api.Socket(d.Socket)}}, nil
}

// Up starts it and waits until it is ready. ErrEnded: it ended first.
func (d Daemon) Up(ctx context.Context) (*Running, error) {
	r, err := d.Start()
	if err != nil {
		return nil, err
	}
	for !r.Ready(ctx) {
		select {
		case <-r.Ended():
			return r, ErrEnded
		case <-ctx.Done():
			r.Kill()
			return r, fmt.Errorf("wait for the daemon: %w", ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
	return r, nil
}

// Environment is env without what would lead a child to the real configuration
// or let it talk to the service manager in our name.
func Environment(env []string) (kept []string) {
	for _, v := range env {
		ours := strings.HasPrefix(v, "OUTBOXD_") || strings.HasPrefix(v, "LISTEN_") ||
			strings.HasPrefix(v, "WATCHDOG_") || strings.HasPrefix(v, "NOTIFY_SOCKET=")
		if !ours {
			kept = append(kept, v)
		}
	}
	return kept
}

// Ready reports whether it says that it is.
func (r *Running) Ready(ctx context.Context) bool {
	status, _, err := r.get(ctx, "/readyz")
	return err == nil && status == http.StatusOK
}

// get is a page of the daemon's that is for monitoring.
func (r *Running) get(ctx context.Context, path string) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://outboxd"+path, nil)
	if err != nil {
		return 0, "", fmt.Errorf("make request: %w", err)
	}
	res, err := r.http.Do(req)
	if err != nil {
		return 0, "", fmt.Errorf("ask the daemon: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// Metric is the sum of a metric's series, as it is now.
func (r *Running) Metric(ctx context.Context, name string) (float64, error) {
	_, text, err := r.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || !strings.HasPrefix(rest, " ") && !strings.HasPrefix(rest, "{") {
			continue
		}
		fields := strings.Fields(rest)
		n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("read metric %s: %w", name, err)
		}
		sum += n
	}
	return sum, nil
}

// Client is a client of the daemon's, over its socket.
func (d Daemon) Client() *api.Client { return api.NewClient(api.Socket(d.Socket)) }
