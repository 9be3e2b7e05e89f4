// Command bench measures what outboxd promises about speed, idleness and memory,
// beside a yardstick: an engine that does the least row work of an outbox with a
// group commit (limit.go). It says how the two compare on the machine at hand,
// and whether each required figure was reached; it changes nothing else.
//
// Each run is a process of its own on a file on a real disk. Runs that are
// compared alternate, so that a noisy machine is noisy for both.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// runTime is the most that one run may take.
const runTime = 15 * time.Minute

type options struct {
	reps    int
	quick   bool
	write   bool
	only    string
	dir     string
	profile string
	child   string
}

func main() {
	var o options
	flag.IntVar(&o.reps, "reps", 5, "how often each run is repeated")
	flag.BoolVar(&o.quick, "quick", false, "small and once: shows that it works, measures little")
	flag.BoolVar(&o.write, "write", false, "write RESULTS.md, too")
	flag.StringVar(&o.only, "only", "", "only groups whose name matches this regular expression")
	flag.StringVar(&o.dir, "dir", "data", "directory for files, on the disk to be measured")
	flag.StringVar(&o.profile, "cpuprofile", "", "directory for a CPU profile of each run")
	flag.StringVar(&o.child, "run", "", "one run as JSON: how this program calls itself")
	flag.Parse()
	do := o.all
	if o.child != "" {
		do = o.one
	}
	if err := do(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// one run in this process, its metrics as JSON on standard output.
func (o options) one(ctx context.Context) error {
	var s spec
	if err := json.Unmarshal([]byte(o.child), &s); err != nil {
		return fmt.Errorf("read spec: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	m, err := measures[s.Measure](ctx, s)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	if err := s.cleanUp(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(m)
}

// results are the metrics of every run of a spec, in order.
type results map[string][]metrics

func (o options) all(ctx context.Context) error {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	if o.quick {
		o.reps = 1
	}
	outboxd := o.build(ctx)
	found := results{}
	for _, g := range plan(sizesOf(o.quick)) {
		if !only.MatchString(g.name) {
			continue
		}
		for i := range g.specs {
			g.specs[i].Dir, g.specs[i].Outboxd = o.dir, outboxd
		}
		if err := o.group(ctx, g, found); err != nil {
			return err
		}
	}
	return o.report(ctx, found)
}

// build makes the daemon. Without one, what needs it is not measured.
func (o options) build(ctx context.Context) string {
	name := filepath.Join(o.dir, "outboxd")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", name, "./cmd/outboxd")
	cmd.Dir, cmd.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "bench: outboxd does not build, so it is left out: %v\n%s", err, out)
		return ""
	}
	return name
}

// group runs its specs in turn, in one order and then in the other.
func (o options) group(ctx context.Context, g group, found results) error {
	reps := o.reps
	if g.most > 0 {
		reps = min(reps, g.most)
	}
	for _, s := range g.specs {
		if s.Done == 0 || s.Outboxd == "" && g.daemon {
			continue
		}
		t := spec{Name: "template", Measure: "template", Done: s.Done, Dir: s.Dir}
		if _, err := o.process(ctx, t); err != nil {
			return err
		}
	}
	for rep := range reps {
		specs := slices.Clone(g.specs)
		if rep%2 == 1 {
			slices.Reverse(specs)
		}
		for _, s := range specs {
			if s.Outboxd == "" && g.daemon {
				continue
			}
			m, err := o.process(ctx, s)
			if err != nil {
				return err
			}
			found[s.Name] = append(found[s.Name], m)
		}
	}
	return nil
}

// process runs one spec in a process of its own.
func (o options) process(ctx context.Context, s spec) (metrics, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil {
			return nil, err
		}
		s.Profile = filepath.Join(o.profile, regexp.MustCompile(`\W+`).ReplaceAllString(s.Name, "-")+".pprof")
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	cmd := exec.CommandContext(ctx, self, "-run", string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	var m metrics
	if err := json.Unmarshal(out, &m); err != nil {
		return nil, fmt.Errorf("read metrics of %s: %w", s.Name, err)
	}
	fmt.Fprintf(os.Stderr, "%5.1f s  %-40s %s\n", time.Since(start).Seconds(), s.Name, m)
	return m, nil
}

// String lists the metrics by name.
func (m metrics) String() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		words = append(words, name+"="+number(m[name]))
	}
	return strings.Join(words, " ")
}
