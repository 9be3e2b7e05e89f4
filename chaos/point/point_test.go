package point_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxd/outboxd/chaos/point"
)

func TestEveryPointHasItsName(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range point.All() {
		name := p.String()
		got, ok := point.Named(name)
		if !ok || got != p || seen[name] || name == "?" {
			t.Errorf("Named(%q) = %v, %t; want %v, once", name, got, ok, p)
		}
		seen[name] = true
	}
	for _, name := range []string{"boot.before", "batch.after", "settle.before", "checkpoint.after", "send.before", "send.sent", "send.answered"} {
		if !seen[name] {
			t.Errorf("%s is no point", name)
		}
	}
	if got := len(seen); got != 2*17+3 {
		t.Errorf("%d points, want 37", got)
	}
	if k := point.Settle; k.Before().String() != "settle.before" || k.After().String() != "settle.after" {
		t.Errorf("the points of settle are %s and %s", k.Before(), k.After())
	}
}

func TestPlans(t *testing.T) {
	for _, text := range []string{
		"settle.before=kill", "send.sent=stop@3", "claim.after=sleep:50ms,settle.before=kill@2,boot.after=stop",
	} {
		if p, err := point.Parse(text); err != nil || p.String() != text {
			t.Errorf("Parse(%q) = %q, %v", text, p, err)
		}
	}
	for _, text := range []string{
		"", "settle=kill", "setle.before=kill", "settle.before", "settle.before=maim", "settle.before=kill@0", "settle.before=kill@x",
		"settle.before=sleep", "settle.before=sleep:5", "settle.before=kill:1s", "settle.before=sleep:-1s",
		"boot.after=kill,boot.after=kill,boot.after=kill,boot.after=kill",
	} {
		if p, err := point.Parse(text); !errors.Is(err, point.ErrPlan) {
			t.Errorf("Parse(%q) = %q, %v; want ErrPlan", text, p, err)
		}
	}
}

// child is the environment variable that makes this test binary pass points.
const child = "POINT_TEST_PLAN"

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(child); ok {
		pass(text)
	}
	os.Exit(m.Run())
}

// pass is a process with a plan that goes through settle three times and past a
// send.
func pass(text string) {
	plan, err := point.Parse(text)
	if err != nil {
		os.Exit(9)
	}
	point.Arm(plan, os.Stderr)
	var set point.Set
	set.Add(point.Settle)
	for _, line := range []string{"one\n", "two\n", "three\n"} {
		set.Before()
		_, _ = os.Stdout.WriteString(line)
		set.After()
	}
	point.Hit(point.SendSent)
	os.Exit(0)
}

// run is what such a process writes, and how it ends.
func run(t *testing.T, plan string) (out, said string, state *os.ProcessState) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+plan)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState
}

func TestAKillIsAtItsPointAndHit(t *testing.T) {
	for plan, want := range map[string]string{
		"settle.before=kill":                         "",
		"settle.after=kill":                          "one\n",
		"settle.before=kill@3":                       "one\ntwo\n",
		"settle.after=sleep:1ms@2,settle.after=kill": "one\ntwo\nthree\n",
		"send.sent=kill":                             "one\ntwo\nthree\n",
	} {
		out, said, state := run(t, plan)
		if s, ok := state.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL || out != want {
			t.Errorf("%s: ended with %v after %q, want a kill after %q", plan, state, out, want)
		}
		if !strings.HasPrefix(said, "chaos: settle.") && !strings.HasPrefix(said, "chaos: send.") {
			t.Errorf("%s: it said %q", plan, said)
		}
	}
	for _, plan := range []string{"mark.before=kill", "settle.before=kill@4", "mark.before=kill,settle.before=kill"} {
		if _, _, state := run(t, plan); !state.Success() {
			t.Errorf("%s: ended with %v though its point was not passed", plan, state)
		}
	}
}

func TestASleepIsNoLongerThanSaid(t *testing.T) {
	began := time.Now()
	out, _, state := run(t, "settle.after=sleep:100ms@2")
	if took := time.Since(began); !state.Success() || out != "one\ntwo\nthree\n" || took < 100*time.Millisecond {
		t.Errorf("ended with %v after %s and %q", state, took, out)
	}
}

func TestAStoppedProcessStandsAtItsPoint(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"=settle.before=stop@2")
	var stdout strings.Builder
	cmd.Stdout = &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("not stopped: %v, %v", status, err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || stdout.String() != "one\ntwo\nthree\n" {
		t.Errorf("after it was continued: %v, %q", err, stdout.String())
	}
}

// BenchmarkOff is what a hook costs where nothing is armed.
func BenchmarkOff(b *testing.B) {
	for b.Loop() {
		point.Hit(point.SendBefore)
	}
}

// BenchmarkNothing is the loop alone.
func BenchmarkNothing(b *testing.B) {
	for b.Loop() { //nolint:revive // that nothing is in it is the measure
	}
}
