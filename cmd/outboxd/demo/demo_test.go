package demo_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// program is the built binary.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "outboxd-demo-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "outboxd")
		if out, err := exec.Command("go", "build", "-o", program, "..").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// run is one demo that is under way, with a temporary directory of its own.
type run struct {
	*exec.Cmd
	t      *testing.T
	tmp    string
	out    io.Reader
	stderr bytes.Buffer
}

// prepare makes a demo that writes to a pipe.
func prepare(t *testing.T, args ...string) *run {
	t.Helper()
	tmp, err := os.MkdirTemp("/tmp", "od") // short: a socket's address is to fit behind it
	if err != nil {
		t.Fatal(err)
	}
	r := &run{Cmd: exec.Command(program, append([]string{"demo"}, args...)...), t: t, tmp: tmp}
	// What belongs to the real daemon must not reach the demo's.
	r.Env = append(os.Environ(), "TMPDIR="+tmp, "OUTBOXD_DATABASE_PATH=/nowhere/real.db", "OUTBOXD_LISTEN_SOCKET=/nowhere/real.sock")
	r.Stderr = &r.stderr
	t.Cleanup(func() {
		for _, pid := range r.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		os.RemoveAll(tmp)
	})
	return r
}

func begin(t *testing.T, args ...string) *run {
	t.Helper()
	r := prepare(t, args...)
	out, err := r.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.out = out
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// end returns what was still to be read, and the exit status.
func (r *run) end() (string, int) {
	r.t.Helper()
	rest, err := io.ReadAll(r.out)
	if err != nil && !errors.Is(err, syscall.EIO) { // a terminal that nobody has open any more
		r.t.Fatal(err)
	}
	err = r.Wait()
	if exited := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exited) {
		r.t.Fatal(err)
	}
	return string(rest), r.ProcessState.ExitCode()
}

// inFlight returns when the downstream has what the daemon is killed over.
func (r *run) inFlight() {
	r.t.Helper()
	lines := bufio.NewScanner(r.out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "order-5  parcel   in_progress") {
			return
		}
	}
	r.t.Fatalf("order-5 never got under way: %v; stderr: %s", lines.Err(), r.stderr.String())
}

// processes are those that have the temporary directory in their environment.
func (r *run) processes() (pids []int) {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, name := range files {
		env, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(env, []byte("TMPDIR="+r.tmp+"\x00")) {
			continue // gone, or not ours
		}
		var pid int
		if _, err := fmt.Sscanf(name, "/proc/%d/environ", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// nothingIsLeft: neither a process nor a directory.
func (r *run) nothingIsLeft() {
	r.t.Helper()
	if pids := r.processes(); len(pids) > 0 {
		r.t.Errorf("processes %v are left behind", pids)
	}
	if left, _ := filepath.Glob(r.tmp + "/*"); len(left) > 0 {
		r.t.Errorf("left behind: %v", left)
	}
}

func TestDemoMeetsEveryExpectation(t *testing.T) {
	t.Parallel()
	began := time.Now()
	r := begin(t)
	out, code := r.end()
	if code != 0 || r.stderr.Len() > 0 {
		t.Fatalf("exit status %d, stderr %q; shown:\n%s", code, r.stderr.String(), out)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s, at most 30 s", took)
	}
	for _, want := range []string{
		`order-1  receipt  succeeded    1 attempt, 1 effect\n`,
		`order-2  courier  pending      1 attempt, 0 effects\n`,
		`order-2  courier  pending      2 attempts, 0 effects\n`,
		`order-2  courier  succeeded    3 attempts, 1 effect\n`,
		`order-3  refund   unknown      1 attempt, 1 effect\n`,
		`order-3  refund   succeeded    1 attempt, 1 effect\n`,
		`order-4  label    dead         1 attempt, 0 effects\n`,
		`order-5  parcel   in_progress  1 attempt, 1 effect\n`,
		`kill -9 \d+: outboxd is dead`,
		`Outboxd is started again \(process \d+\)`,
		`order-5  parcel   succeeded    2 attempts, 1 effect\n`,
		`ok  order-1  status +succeeded +succeeded\nok +attempts/requests/effects  1 / 1 / 1 +1 / 1 / 1\n`,
		`ok  order-2  status +succeeded +succeeded\nok +attempts/requests/effects  3 / 3 / 1 +3 / 3 / 1\n`,
		`ok  order-3  status +succeeded \(asked\) +succeeded \(asked\)\nok +attempts/requests/effects  1 / 1 / 1 +1 / 1 / 1\nok +questions +1 +1\n`,
		`ok  order-4  status +dead: rejected +dead: rejected\nok +attempts/requests/effects  1 / 1 / 0 +1 / 1 / 0\n`,
		`ok  order-5  status +succeeded +succeeded\nok +attempts/requests/effects  2 / 2 / 1 +2 / 2 / 1\nok +status at the kill +in_progress +in_progress\n`,
		`ok  each     same key each attempt +yes +yes\nok +same bytes each attempt +yes +yes\nok +token rises each attempt +yes +yes\n`,
		`ok  file     audit +5 checked, 0 wrong +5 checked, 0 wrong\n`,
		`ok  outboxd  stops when asked +exit status 0 +exit status 0\n`,
		`Everything was as expected\. It took \d`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("not shown: %s", want)
		}
	}
	if strings.Contains(out, "WRONG") || strings.Contains(out, "\x1b") || t.Failed() {
		t.Errorf("shown:\n%s", out)
	}
	r.nothingIsLeft()
}

func TestDemoNoticesADownstreamThatDoesThingsTwice(t *testing.T) {
	t.Parallel()
	r := begin(t, "--fault", "forgetful", "--keep", "-o", "json")
	out, code := r.end()
	var report struct {
		Checks []struct{ Of, What, Expected, Found string }
		Kept   string
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 {
		t.Fatalf("exit status %d, want 1; output %q, stderr %q: %v", code, out, r.stderr.String(), err)
	}
	for _, c := range report.Checks {
		wrong := c.Of == "order-5" && c.Found == "2 / 2 / 2"
		if wrong != (c.Expected != c.Found) {
			t.Errorf("%s, %s: expected %q and found %q", c.Of, c.What, c.Expected, c.Found)
		}
	}
	if len(report.Checks) < 15 {
		t.Errorf("only %d checks: %s", len(report.Checks), out)
	}
	r.kept(report.Kept)
}

// kept: what a demo kept can be looked at.
func (r *run) kept(dir string) {
	r.t.Helper()
	if filepath.Dir(dir) != r.tmp {
		r.t.Fatalf("kept %q, want a directory in %q", dir, r.tmp)
	}
	list, err := exec.Command(program, "list", "--config", filepath.Join(dir, "outboxd.yaml"), "--state", "dead").CombinedOutput()
	if err != nil || !strings.Contains(string(list), "order-4") {
		r.t.Errorf("list of what was kept: %v, %s", err, list)
	}
	if pids := r.processes(); len(pids) > 0 {
		r.t.Errorf("processes %v are left behind", pids)
	}
}

func TestSignalsLeaveNothingBehind(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			r := begin(t)
			r.inFlight()
			if err := r.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_, code := r.end()
			if code != 2 || !strings.Contains(r.stderr.String(), `"code":"INTERRUPTED"`) {
				t.Errorf("exit status %d and stderr %q, want 2 and INTERRUPTED", code, r.stderr.String())
			}
			r.nothingIsLeft()
		})
	}
}

func TestClosedPipeLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	r := prepare(t)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.out, r.Stdout = out, in
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	r.inFlight()
	out.Close() // as head does
	r.out = strings.NewReader("")
	_, code := r.end()
	if code != 2 || !strings.Contains(r.stderr.String(), `"code":"OUTPUT_IO_ERROR"`) {
		t.Errorf("exit status %d and stderr %q, want 2 and OUTPUT_IO_ERROR", code, r.stderr.String())
	}
	r.nothingIsLeft()
}

// TestKilledDemoTakesItsProcessesAlong: nothing can be done about the directory.
func TestKilledDemoTakesItsProcessesAlong(t *testing.T) {
	t.Parallel()
	r := begin(t)
	r.inFlight()
	if n := len(r.processes()); n != 3 {
		t.Fatalf("%d processes while the demo runs, want 3", n)
	}
	if err := r.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.end()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	tooLate := time.After(10 * time.Second)
	for len(r.processes()) > 0 {
		select {
		case <-look.C:
		case <-tooLate:
			t.Fatalf("processes %v outlive the demo", r.processes())
		}
	}
}

func TestTerminalIsRedrawnInPlace(t *testing.T) {
	t.Parallel()
	r := onTerminal(t, "NO_COLOR=1")
	out, code := r.end()
	if code != 0 {
		t.Fatalf("exit status %d, stderr %q", code, r.stderr.String())
	}
	if n := strings.Count(out, "\x1b[7A\x1b[J"); n < 5 {
		t.Errorf("redrawn %d times, want at least 5", n)
	}
	if regexp.MustCompile("\x1b\\[[0-9;]*m").MatchString(out) {
		t.Error("coloured although NO_COLOR is set")
	}
	if strings.Contains(out, "order-1  receipt  succeeded    1 attempt,") {
		t.Error("changes are lines as well")
	}
	r.nothingIsLeft()
}

func TestTerminalIsColouredUnlessAskedNotTo(t *testing.T) {
	t.Parallel()
	r := onTerminal(t, "NO_COLOR=")
	for lines := bufio.NewScanner(r.out); lines.Scan() && !strings.Contains(lines.Text(), "\x1b[32msucceeded\x1b[0m"); {
	}
	if err := r.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if _, code := r.end(); code != 2 {
		t.Errorf("exit status %d, want 2: it ended before a coloured word came", code)
	}
	r.nothingIsLeft()
}

// onTerminal begins a demo on a pseudo terminal.
func onTerminal(t *testing.T, env string) *run {
	t.Helper()
	r := prepare(t)
	ours, theirs := terminal(t)
	r.Env = append(r.Env, "TERM=xterm", env)
	r.out, r.Stdout = ours, theirs
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	return r
}

// terminal opens a pseudo terminal of 80 columns and 24 lines (pty(7)).
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	t.Cleanup(func() { ours.Close() })
	fd := int(ours.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}
