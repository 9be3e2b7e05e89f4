package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
)

// server is the real daemon, in a process of its own.
type server struct {
	cmd    *exec.Cmd
	dir    string // of config, socket and log; the socket's path must be short
	client *http.Client
}

const configText = `
database: {path: %q}
listen: {socket: %q}
log: {level: info, format: json}
worker: {concurrency: %d}
operators: {uids: [%d]}
tools:
  - {name: noop, effect: idempotent, concurrency: %d, http: {url: %q}}
  - {name: halted, effect: idempotent, http: {url: "http://127.0.0.1:9/halted"}}
`

// startDaemon runs outboxd on the file at path and waits until it is ready. Its
// tool posts to url.
func startDaemon(ctx context.Context, s spec, path, url string) (d *server, err error) {
	if s.Outboxd == "" {
		return nil, errors.New("outboxd was not built")
	}
	d = &server{}
	if d.dir, err = os.MkdirTemp("", "outboxd-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop())
		}
	}()
	config, socket := filepath.Join(d.dir, "outboxd.yaml"), filepath.Join(d.dir, "s")
	text := fmt.Sprintf(configText, path, socket, slots, os.Getuid(), slots, url)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(d.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d.cmd = exec.Command(s.Outboxd, "run", "--config", config)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start outboxd: %w", err)
	}
	d.client = overSocket(socket, max(1, s.Clients))
	return d, d.ready(ctx)
}

func overSocket(path string, clients int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: clients,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
}

func (d *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		res, err := d.client.Get("http://outboxd/readyz")
		if err == nil {
			_ = res.Body.Close() // only its status counts
			if res.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(res.Status)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("outboxd is not ready: %w", err)
		case <-tick.C:
		}
	}
}

// stop drains the daemon and removes what was made for it. A daemon that fails
// shows its log.
func (d *server) stop() error {
	defer os.RemoveAll(d.dir)
	if d.cmd == nil || d.cmd.Process == nil {
		return nil
	}
	if d.client != nil {
		d.client.CloseIdleConnections()
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := d.cmd.Wait(); err != nil {
		log, _ := os.ReadFile(filepath.Join(d.dir, "log")) // what there is of it
		return fmt.Errorf("outboxd ended: %w: %s", err, log[max(0, len(log)-2000):])
	}
	return nil
}

// submitCase is the body of a submit (a case).
type submitCase struct {
	Principal struct {
		Tenant  string `json:"tenant_id"`
		Subject string `json:"subject_id"`
	} `json:"principal"`
	Call struct {
		Tool      string          `json:"tool_name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"call"`
	Key       string `json:"idempotency_key"`
	NotBefore string `json:"not_before,omitempty"`
}

func (d *server) submit(ctx context.Context, seq, size int, notBefore string) error {
	r, err := request("noop", seq, size)
	if err != nil {
		return err
	}
	c := submitCase{Key: r.Scope.Key, NotBefore: notBefore}
	c.Principal.Tenant, c.Principal.Subject = r.Scope.Tenant, r.Scope.Subject
	c.Call.Tool, c.Call.Arguments = r.Scope.Tool, r.Arguments
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://outboxd/v1/operations", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("submit: %s: %s", res.Status, answer)
	}
	return err
}

// socket: clients submit to a daemon that has nothing to work on yet.
func socket(ctx context.Context, s spec) (m metrics, err error) {
	path, err := s.freshFile()
	if err != nil {
		return nil, err
	}
	d, err := startDaemon(ctx, s, path, nowhere)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	notBefore := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	before, err := usageOf(d.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	m, err = s.submit(ctx, func(ctx context.Context, seq int) error { return d.submit(ctx, seq, 0, notBefore) })
	if err != nil {
		return nil, err
	}
	after, err := usageOf(d.cmd.Process.Pid)
	m["daemon_us"] = 1e6 * (after.cpu - before.cpu) / float64(s.N+warmUp)
	return m, err
}

// idle: a daemon with a past and a future, and nothing to do now.
func idle(ctx context.Context, s spec) (m metrics, err error) {
	path, err := s.freshFile()
	if err != nil {
		return nil, err
	}
	if err := copyFile(s.template(s.Done), path); err != nil {
		return nil, err
	}
	if err := fillIdle(ctx, path); err != nil {
		return nil, fmt.Errorf("fill: %w", err)
	}
	d, err := startDaemon(ctx, s, path, nowhere)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	<-time.After(4 * time.Second) // the log is truncated after two
	before, err := usageOf(d.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	<-time.After(s.Window)
	after, err := usageOf(d.cmd.Process.Pid)
	return metrics{
		"cpu_pct": 100 * (after.cpu - before.cpu) / time.Since(start).Seconds(),
		"written": after.written - before.written, "rss": after.rss,
	}, err
}

// sink is a downstream that says yes.
func sink(done func()) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a broken request is sent again
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(receiptBody)
		done()
	}))
}

// memory: operations pass through a daemon from submit to delivery, while what
// it holds is sampled.
func memory(ctx context.Context, s spec) (m metrics, err error) {
	path, err := s.freshFile()
	if err != nil {
		return nil, err
	}
	c := newCountdown(warmUp + s.N)
	downstream := sink(c.one)
	defer downstream.Close()
	d, err := startDaemon(ctx, s, path, downstream.URL)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	var passed atomic.Int64
	watch := watchMemory(d.cmd.Process.Pid, func() bool { return passed.Load() > int64(s.N/10) })
	m, err = s.submit(ctx, func(ctx context.Context, seq int) error {
		defer passed.Add(1)
		return d.submit(ctx, seq, s.Bytes, "")
	})
	if err == nil {
		err = c.wait(ctx)
	}
	seen, watchErr := watch()
	if err = errors.Join(err, watchErr); err != nil {
		return nil, err
	}
	return metrics{"warm": seen.warm, "most": seen.most, "growth": seen.most - seen.warm, "per_s": m["per_s"]}, nil
}

// memorySeen is resident memory in MB.
type memorySeen struct {
	warm float64 // the most until the daemon was warm
	most float64 // the most after that
}

// watchMemory samples until the function returned is called.
func watchMemory(pid int, warm func() bool) (end func() (memorySeen, error)) {
	var seen memorySeen
	var err error
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			u, e := usageOf(pid)
			if e != nil {
				err = e
				return
			}
			if to := &seen.warm; warm() {
				seen.most = max(seen.most, u.rss)
			} else {
				*to = max(*to, u.rss)
			}
		}
	}()
	return func() (memorySeen, error) {
		close(stop)
		<-done
		return seen, err
	}
}
