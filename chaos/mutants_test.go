package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mutant is a fault that is put into the sources, and the test that must find it.
// One that starts with "chaos" is run against a daemon that has the fault.
type mutant struct {
	name     string
	file     string
	from, to string // from stands there exactly once
	killer   string // package and test
}

// sample is how many of them a quick run builds and runs. All are looked at.
const sample = 3

// TestMutants: each fault is found by the test that is named for it. One that
// survives is a promise that nothing keeps; one that no longer applies is a test
// of nothing.
func TestMutants(t *testing.T) {
	only := os.Getenv("OUTBOXD_MUTANT")
	if os.Getenv("OUTBOXD_BINARY") != "" {
		t.Skip("this run is about one mutant")
	}
	for i, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			overlay := m.overlay(t)
			if only == "" && !full && i >= sample || only != "" && only != m.name {
				return
			}
			out, killed := m.run(t, overlay)
			if !killed {
				t.Fatalf("it survives %s:\n%s\nto repeat it: OUTBOXD_MUTANT='%s' go test -count=1 -run '^TestMutants$' ./chaos",
					m.killer, lastLines(out, 20), m.name)
			}
			figure("mutants", "killed", 1)
		})
	}
	figure("mutants", "that apply", len(mutants))
	if len(mutants) < 30 {
		t.Errorf("%d mutants, want at least 30", len(mutants))
	}
}

// overlay writes the mutated source and what go build is to be told of it.
func (m mutant) overlay(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("..")
	must(t, err)
	source, err := os.ReadFile(filepath.Join(root, m.file))
	must(t, err)
	if n := strings.Count(string(source), m.from); n != 1 {
		t.Fatalf("%s: the text that it changes stands there %d times, want once:\n%s", m.file, n, m.from)
	}
	dir := t.TempDir()
	mutated := filepath.Join(dir, filepath.Base(m.file))
	must(t, os.WriteFile(mutated, []byte(strings.Replace(string(source), m.from, m.to, 1)), 0o600))
	text, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, m.file): mutated}})
	must(t, err)
	overlay := filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(overlay, text, 0o600))
	return overlay
}

// run runs the killer. A mutant that does not build is not killed.
func (m mutant) run(t *testing.T, overlay string) (out string, killed bool) {
	t.Helper()
	pkg, test, ok := strings.Cut(m.killer, " ")
	if !ok {
		t.Fatalf("%q names no test", m.killer)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var cmd *exec.Cmd
	if pkg == "chaos" {
		daemon := filepath.Join(t.TempDir(), "outboxd")
		must(t, build(daemon, "-overlay", overlay))
		cmd = exec.CommandContext(ctx, os.Args[0], "-test.run", pattern(test), "-test.v", "-test.failfast", "-test.parallel=8", "-test.timeout=3m")
		cmd.Env = append(os.Environ(), "OUTBOXD_BINARY="+daemon, "OUTBOXD_CHAOS=", "OUTBOXD_FIGURES=")
	} else {
		cmd = exec.CommandContext(ctx, "go", "test", "-count=1", "-failfast", "-timeout=3m", "-overlay", overlay, "-run", pattern(test), "./"+pkg)
		cmd.Dir = ".."
	}
	text, err := cmd.CombinedOutput()
	out = string(text)
	if err != nil && !strings.Contains(out, "--- FAIL: ") && !strings.Contains(out, "panic: ") {
		t.Fatalf("the test did not run: %v\n%s", err, lastLines(out, 30))
	}
	return out, err != nil
}

func pattern(test string) string {
	return "^" + strings.Join(strings.Split(test, "/"), "$/^") + "$"
}

func lastLines(text string, n int) string {
	lines := strings.SplitAfter(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// TestAMutantThatDoesNotApplyIsNoticed: the check of the runner itself.
func TestAMutantThatDoesNotApplyIsNoticed(t *testing.T) {
	for _, m := range mutants {
		if m.from == m.to || m.from == "" {
			t.Errorf("%s changes nothing", m.name)
		}
	}
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.name] {
			t.Errorf("two mutants are called %s", m.name)
		}
		names[m.name] = true
	}
	if got := fmt.Sprint(pattern("TestA"), " ", pattern("TestA/b")); got != "^TestA$ ^TestA$/^b$" {
		t.Errorf("patterns are %q", got)
	}
}
