package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	slots     = 64  // attempts at a time
	fillBatch = 250 // operations in one closure while a file is filled
	warmUp    = 20  // calls before the clock starts
	pause     = 20 * time.Millisecond
)

// spec is what one process measures.
type spec struct {
	Name    string        // its row in the results
	Measure string        // of measures
	N       int           // operations
	Done    int           // delivered ones that are in the file before
	Clients int           // at a time
	Effect  string        // of the tool
	Session bool          // each operation names a turn
	Bytes   int           // of the arguments; 0: those of the yardstick
	Window  time.Duration // how long an idle daemon is watched
	Dir     string        // for files, on a real disk
	Outboxd string        // the built daemon
	Profile string        // CPU profile to write; "": none
}

// metrics are the numbers of one run.
type metrics map[string]float64

var measures = map[string]func(context.Context, spec) (metrics, error){
	"drain": drainOurs, "local": drainLocal, "drain yardstick": drainYardstick,
	"accept": acceptOurs, "accept yardstick": acceptYardstick,
	"latency": latencyOurs, "latency yardstick": latencyYardstick,
	"socket": socket, "idle": idle, "memory": memory, "template": makeTemplates,
}

// freshFile names a database file that does not exist.
func (s spec) freshFile() (string, error) {
	path := filepath.Join(s.Dir, fmt.Sprintf("run-%d.db", os.Getpid()))
	return path, removeFile(path)
}

func removeFile(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		if err := os.RemoveAll(path + suffix); err != nil {
			return fmt.Errorf("remove old file: %w", err)
		}
	}
	return nil
}

// cleanUp removes what this process left in the directory.
func (s spec) cleanUp() error {
	path, err := s.freshFile()
	if err != nil {
		return err
	}
	return os.RemoveAll(path)
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() {
		if e := out.Close(); err == nil {
			err = e
		}
	}()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Sync()
}

// run is a stretch of time that is measured.
type run struct {
	start   time.Time
	cpu     float64
	profile *os.File
}

func (s spec) begin() *run {
	r := &run{}
	if s.Profile != "" {
		f, err := os.Create(s.Profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench: no profile:", err)
		}
		r.profile = f
	}
	r.cpu, r.start = ownCPU(), time.Now()
	return r
}

// rates ends the run: n operations took that long.
func (r *run) rates(n int) metrics {
	took := time.Since(r.start).Seconds()
	cpu := ownCPU() - r.cpu
	if r.profile != nil {
		pprof.StopCPUProfile()
		_ = r.profile.Close() // a truncated profile says so itself
	}
	return metrics{"per_s": float64(n) / took, "cpu_us": 1e6 * cpu / float64(n)}
}

// countdown counts what is finished.
type countdown struct {
	left atomic.Int64
	all  chan struct{}
}

func newCountdown(n int) *countdown {
	c := &countdown{all: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *countdown) one() {
	if c.left.Add(-1) == 0 {
		close(c.all)
	}
}

func (c *countdown) wait(ctx context.Context) error {
	select {
	case <-c.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of the operations left: %w", c.left.Load(), ctx.Err())
	}
}

// submit lets s.Clients call at the same time until s.N calls are made.
func (s spec) submit(ctx context.Context, call func(context.Context, int) error) (metrics, error) {
	for i := range warmUp {
		if err := call(ctx, i); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
	}
	var next atomic.Int64
	took := make([][]float64, s.Clients)
	errs := make([]error, s.Clients)
	r := s.begin()
	var clients sync.WaitGroup
	for c := range s.Clients {
		clients.Go(func() {
			for i := int(next.Add(1)) - 1; i < s.N && errs[c] == nil; i = int(next.Add(1)) - 1 {
				start := time.Now()
				errs[c] = call(ctx, warmUp+i)
				took[c] = append(took[c], milliseconds(time.Since(start)))
			}
		})
	}
	clients.Wait()
	m := r.rates(s.N)
	for _, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("submit: %w", err)
		}
	}
	m.quantiles("call", slices.Concat(took...))
	return m, nil
}

// oneAtATime calls every now and then and waits for the handler to begin.
func (s spec) oneAtATime(ctx context.Context, began <-chan time.Time, call func(context.Context, int) error) (metrics, error) {
	var whole, after []float64
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for i := range s.N + warmUp {
		<-tick.C
		called := time.Now()
		if err := call(ctx, i); err != nil {
			return nil, fmt.Errorf("submit: %w", err)
		}
		returned := time.Now()
		select {
		case at := <-began:
			if i >= warmUp {
				whole = append(whole, milliseconds(at.Sub(called)))
				after = append(after, milliseconds(at.Sub(returned)))
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("operation %d has not begun: %w", i, ctx.Err())
		}
	}
	m := metrics{}
	m.quantiles("whole", whole)
	m.quantiles("after", after)
	return m, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (m metrics) quantiles(name string, v []float64) {
	slices.Sort(v)
	for suffix, q := range map[string]float64{"_p50": .5, "_p95": .95, "_p99": .99} {
		m[name+suffix] = quantile(v, q)
	}
}

// quantile of sorted values, NaN of none.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	return v[min(len(v)-1, int(q*float64(len(v))))]
}
