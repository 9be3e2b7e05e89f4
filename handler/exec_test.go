package handler_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/handler"
)

func run(t *testing.T, script string) handler.Outcome {
	t.Helper()
	return build(t, shell(script)).Handler.Execute(within(t, time.Minute), call())
}

// pipe is a named pipe that a program under test writes to. Reading it to the
// end waits until all who had opened it are dead.
func pipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProgramGetsTheEnvelopeAndNothingElse(t *testing.T) {
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "OUTBOXD_SECRET", "PASSED"} {
		t.Setenv(name, "x")
	}
	dir := t.TempDir()
	tool := shell(`pwd; env | sort; cat; ls /proc/self/fd; echo '{"n":1.0}'`)
	tool.Exec.Argv[2] = "exec > out; " + tool.Exec.Argv[2]
	tool.Exec.Dir = dir
	tool.Exec.Env = []config.EnvVar{{Name: "PASSED"}, {Name: "GIVEN", Value: "a b"}, {Name: "UNSET_HERE"}}
	leaked, err := syscall.Dup(0) // without close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(leaked)
	c := call()
	if out := build(t, tool).Handler.Execute(within(t, time.Minute), c); out.Observed != handler.Succeeded {
		t.Fatalf("outcome %+v", out)
	}
	got, err := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	lines = slices.DeleteFunc(lines, func(s string) bool { return strings.HasPrefix(s, "PWD=") }) // the shell's own
	want := []string{
		dir, "GIVEN=a b", "OUTBOX_ATTEMPT=3", "OUTBOX_FENCING_TOKEN=1234567890123456", "OUTBOX_KEY=wk-17",
		"OUTBOX_OPERATION=" + c.StatusRef, "OUTBOX_PURPOSE=execute", "OUTBOX_TOOL=refund", "PASSED=x",
		`{"status_ref":"` + c.StatusRef + `","tool":"refund","tenant_id":"acme","subject_id":"shop","idempotency_key":"order-17",` +
			`"wire_key":"wk-17","attempt":3,"fencing_token":1234567890123456,"purpose":"execute","arguments":` + string(c.Arguments) + `}`,
		"0", "1", "2", "3", // 3 is the directory that ls reads
		`{"n":1.0}`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("what the program saw (-want +got):\n%s", diff)
	}
}

func TestEndOfAProgram(t *testing.T) {
	tests := []struct {
		script string
		want   handler.Observed
		code   string
		result string
	}{
		{"exit 0", handler.Succeeded, "exit_0", ""},
		{"echo talk; echo '{ \"b\":1, \"a\":2 }'; echo", handler.Succeeded, "exit_0", `{"a":2,"b":1}`},
		{"printf 17", handler.Succeeded, "exit_0", "17"},
		{"echo 17; echo done", handler.Succeeded, "exit_0", ""},
		{"echo 17; exit 3", handler.Rejected, "exit_3", ""},
		{"exit 75", handler.TryAgain, "exit_75", ""},
		{"exit 1", handler.MayHaveHappened, "exit_1", ""},
		{"exit 126", handler.MayHaveHappened, "exit_126", ""},
		{"nonexistent-program", handler.MayHaveHappened, "exit_127", ""},
		{"exit 255", handler.MayHaveHappened, "exit_255", ""},
		{"kill -SEGV $$", handler.MayHaveHappened, "signal_11", ""},
		{"kill -KILL $$", handler.MayHaveHappened, "signal_9", ""},
		{"kill -PIPE $$", handler.MayHaveHappened, "signal_13", ""},

		{`echo '{"outcome":"applied","result":{"b":1,"a":2}}'; exit 9`, handler.Succeeded, "outcome_applied", `{"a":2,"b":1}`},
		{`echo '{"outcome":"applied"}'; kill -9 $$`, handler.Succeeded, "outcome_applied", ""},
		{`echo '{"outcome":"rejected","result":1}'`, handler.Rejected, "outcome_rejected", ""},
		{`echo '{"outcome":"retry","retry_after":"90s"}'`, handler.TryAgain, "outcome_retry", ""},
		{`echo '{"outcome":"unknown"}'`, handler.MayHaveHappened, "outcome_unknown", ""},
		{`echo '{"outcome":"in_progress"}'`, handler.InProgress, "outcome_in_progress", ""},
		{`echo '{"outcome":"not_applied"}'`, handler.MayHaveHappened, "outcome_not_applied", ""},
		{`echo '{"outcome":"conflict"}'`, handler.MayHaveHappened, "outcome_conflict", ""},
		{`echo '{"outcome":"applied"}'; echo '{"a":1}'; exit 1`, handler.MayHaveHappened, "exit_1", ""},
		{`echo '{"Outcome":"rejected"}'`, handler.Succeeded, "exit_0", `{"Outcome":"rejected"}`},

		// Exit 0 must not turn what was meant otherwise into a success.
		{`echo '{"outcome":"rejected","reason":"the "big" one"}'`, handler.MayHaveHappened, "bad_outcome", ""},
		{`echo '{"outcome":"rejected","outcome":"rejected"}'`, handler.MayHaveHappened, "bad_outcome", ""},
		{`echo '{"outcome":"done"}'`, handler.MayHaveHappened, "bad_outcome", ""},
		{`echo '{"outcome":null}'`, handler.MayHaveHappened, "bad_outcome", ""},
		{`printf '{"x":"'; head -c 900000 /dev/zero | tr '\0' x; echo '","outcome":"rejected"}'`, handler.MayHaveHappened, "bad_outcome", ""},
		{`printf '"'; head -c 70000 /dev/zero | tr '\0' x; echo '"'`, handler.Succeeded, "exit_0", ""},
	}
	for _, tt := range tests {
		out := run(t, tt.script)
		if out.Observed != tt.want || out.Code != tt.code || string(out.Result) != tt.result || !out.Answered {
			t.Errorf("%.80s: got %s %s %q, answered %t; want %s %s %q", tt.script,
				out.Observed, out.Code, out.Result, out.Answered, tt.want, tt.code, tt.result)
		}
	}
}

func TestProgramSaysWhenToTryAgain(t *testing.T) {
	for said, want := range map[string]time.Duration{`"90s"`: 90 * time.Second, `"1h"`: time.Hour, `90`: 90 * time.Second, `1.5`: 1500 * time.Millisecond, `"7"`: 7 * time.Second, `-4`: 0} {
		out := run(t, `echo '{"outcome":"retry","retry_after":`+said+`}'`)
		if !out.HasRetryAfter || out.RetryAfter != want {
			t.Errorf("retry_after %s: got %v, %t", said, out.RetryAfter, out.HasRetryAfter)
		}
	}
	if out := run(t, `echo '{"outcome":"retry","retry_after":"soon"}'`); out.HasRetryAfter {
		t.Errorf("retry_after soon: got %v", out.RetryAfter)
	}
}

func TestProgramAsked(t *testing.T) {
	tests := []struct {
		script string
		want   handler.Found
		result string
	}{
		{`echo '{"outcome":"applied","result":7}'; exit 1`, handler.Applied, "7"},
		{`echo '{"id":7}'`, handler.Applied, `{"id":7}`},
		{`echo '{"outcome":"not_applied"}'`, handler.NotApplied, ""},
		{`echo '{"outcome":"conflict"}'`, handler.Conflict, ""},
		{`echo '{"outcome":"in_progress"}'`, handler.InProgress, ""},
		{`echo '{"outcome":"unknown"}'`, handler.NoAnswer, ""},
		{`echo '{"outcome":"rejected"}'`, handler.NoAnswer, ""},
		{`echo '{"outcome":"retry"}'`, handler.NoAnswer, ""},
		{`echo '{"outcome":"none"}'`, handler.NoAnswer, ""},
		{`exit 1`, handler.NoAnswer, ""},
		{`exit 3`, handler.NoAnswer, ""},
		{`kill -9 $$`, handler.NoAnswer, ""},
	}
	for _, tt := range tests {
		tool := shell("exit 1")
		tool.Query = &config.Query{Exec: shell(`[ "$OUTBOX_PURPOSE" = query ] || exit 9; ` + tt.script).Exec}
		a := build(t, tool).Asker.Ask(within(t, time.Minute), call())
		if a.Found != tt.want || string(a.Result) != tt.result {
			t.Errorf("%s: got %+v, want %s %q", tt.script, a, tt.want, tt.result)
		}
	}
}

func TestProgramThatDoesNotReadItsInput(t *testing.T) {
	c := call()
	c.Arguments = []byte(`"` + strings.Repeat("x", 65534) + `"`)
	for _, script := range []string{"exit 0", "head -c1 >/dev/null", "exec 0<&-; exit 0", "sleep 0.2; exit 0", "(setsid sleep 2) & exit 0"} {
		out := build(t, shell(script)).Handler.Execute(within(t, time.Minute), c)
		if out.Observed != handler.Succeeded {
			t.Errorf("%s: %+v", script, out)
		}
	}
}

func TestProgramThatCannotStartIsNotSent(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	busy := file("busy", "#!/bin/sh\n", 0o700)
	held, err := os.OpenFile(busy, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	tests := []struct {
		argv []string
		dir  string
		code string
	}{
		{[]string{dir + "/missing"}, "", "not_found"},
		{[]string{"no-such-program-anywhere"}, "", "not_found"},
		{[]string{file("plain", "#!/bin/sh\n", 0o600)}, "", "not_executable"},
		{[]string{dir}, "", "not_executable"},
		{[]string{file("interpreter", "#!/nonexistent/sh\n", 0o700)}, "", "bad_interpreter"},
		{[]string{file("format", "nothing known", 0o700)}, "", "bad_format"},
		{[]string{busy}, "", "text_busy"},
		{[]string{"/bin/sh", "-c", "exit 0"}, dir + "/missing", "dir_missing"},
		{[]string{"/bin/sh", "-c", strings.Repeat("x", 1<<20)}, "", "arguments_too_long"},
	}
	for _, tt := range tests {
		tool := config.Tool{Name: "p", Exec: &config.Exec{Argv: tt.argv, Dir: tt.dir}}
		out := build(t, tool).Handler.Execute(within(t, time.Minute), call())
		if out.Observed != handler.NotSent || out.Code != tt.code || !out.Answered {
			t.Errorf("%.60s: got %+v, want not_sent with code %s", tt.argv, out, tt.code)
		}
	}
}

func TestProgramThatIsJustBeingWrittenIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(50*time.Millisecond, func() { held.Close() })
	defer timer.Stop()
	out := build(t, config.Tool{Name: "p", Exec: &config.Exec{Argv: []string{path}}}).Handler.Execute(within(t, time.Minute), call())
	if out.Observed != handler.Succeeded {
		t.Errorf("outcome %+v", out)
	}
}

// elapsed runs a script with a limit and fails if the attempt outlasts it by
// more than some seconds, however busy the machine is.
func elapsed(t *testing.T, script string, limit time.Duration) handler.Outcome {
	t.Helper()
	began := time.Now()
	c := call()
	c.Token = time.Now().UnixNano() >> 10 // what lives on is known by its token
	out := build(t, shell(script)).Handler.Execute(within(t, limit), c)
	if took := time.Since(began); took > limit+8*time.Second {
		t.Errorf("%s: took %v with a limit of %v", script, took, limit)
	}
	return out
}

func TestGrandchildThatKeepsThePipe(t *testing.T) {
	for script, want := range map[string]handler.Observed{
		"sleep 300 & echo ok":                 handler.Succeeded,
		"(sleep 300; echo late) & echo ok":    handler.Succeeded,
		"sleep 300 & exit 3":                  handler.Rejected,
		"sleep 300 | cat":                     handler.MayHaveHappened,
		"trap '' TERM; sleep 300 & sleep 300": handler.MayHaveHappened,
	} {
		out := elapsed(t, script, 300*time.Millisecond)
		if out.Observed != want || !out.Answered {
			t.Errorf("%s: got %+v, want %s", script, out, want)
		}
		if want == handler.MayHaveHappened && out.Code != "timeout" {
			t.Errorf("%s: code %s", script, out.Code)
		}
	}
}

// The whole group is dead when the attempt is over, also those that outlive
// the program and hold none of its pipes.
func TestNobodyOfTheGroupIsLeft(t *testing.T) {
	for _, script := range []string{
		"sh -c 'exec sleep 300' >/dev/null 2>&1 </dev/null 9>%s & exit 0",
		"trap '' TERM; sh -c 'sleep 300; sleep 300' >/dev/null 2>&1 </dev/null 9>%s & sleep 300",
		"trap 'exit 0' TERM; sh -c 'trap \"\" TERM; sleep 300; sleep 300' 9>%s & wait",
	} {
		dead := pipe(t)
		f, err := os.OpenFile(dead, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		out := elapsed(t, fmt.Sprintf(script, dead), time.Second)
		if err := f.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(f); err != nil {
			t.Errorf("%s: somebody lives on: %v, outcome %+v", script, err, out)
		}
		f.Close()
	}
}

func TestProgramThatPrintsWithoutEnd(t *testing.T) {
	debug.FreeOSMemory()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	for _, script := range []string{"yes lantern", "yes lantern >&2", "yes lantern", "cat /dev/zero"} {
		all.Go(func() {
			out := elapsed(t, script, time.Second)
			if out.Observed != handler.MayHaveHappened || out.Code != "timeout" {
				t.Errorf("%s: %s %s", script, out.Observed, out.Code)
			}
			if len(out.Excerpt) > handler.MaxExcerpt || !strings.HasPrefix(out.Excerpt, "…") || !utf8.ValidString(out.Excerpt) {
				t.Errorf("%s: excerpt of %d bytes: %.20q", script, len(out.Excerpt), out.Excerpt)
			}
		})
	}
	all.Wait()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 20<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

func TestEvidenceOfAProgram(t *testing.T) {
	tool := shell(`echo out; printf 'caf\303\251 \033[1m key k3y-of-ours\n' >&2; exit 1`)
	tool.Exec.Env = []config.EnvVar{{Name: "API_KEY", Value: "k3y-of-ours"}}
	if out := build(t, tool).Handler.Execute(within(t, time.Minute), call()); out.Excerpt != `café \x1b[1m key [redacted]` {
		t.Errorf("excerpt %q", out.Excerpt)
	}
	if out := run(t, `cat; exit 1`); strings.Contains(out.Excerpt, "12.50") {
		t.Errorf("excerpt %q quotes the arguments", out.Excerpt)
	}
	if out := run(t, `printf '%s' '{"outcome":"rejected","reason":"closed\naccount"}'`); out.Excerpt != `closed\naccount` {
		t.Errorf("excerpt %q", out.Excerpt)
	}
	out := run(t, `i=0; while [ $i -lt 2000 ]; do printf ä; i=$((i+1)); done >&2; exit 1`)
	if len(out.Excerpt) > handler.MaxExcerpt || !utf8.ValidString(out.Excerpt) || !strings.HasPrefix(out.Excerpt, "…ä") {
		t.Errorf("excerpt of %d bytes: %.12q", len(out.Excerpt), out.Excerpt)
	}
}

func TestVariablesThatAreNeverGiven(t *testing.T) {
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS", "OUTBOX_KEY", "", "A=B"} {
		tool := shell("exit 0")
		tool.Exec.Env = []config.EnvVar{{Name: name, Value: "x"}}
		if _, err := handler.Build(tool); err == nil {
			t.Errorf("%q: built", name)
		}
	}
}

// The child must get its death signal from the end of the process only. It
// comes when the thread that made the child ends, so threads are made to end all
// the time, and busy goroutines push the others from thread to thread.
func TestChildSurvivesTheEndOfOtherThreads(t *testing.T) {
	const attempts = 20
	gate, began := pipe(t), pipe(t)
	pair := build(t, shell("echo >"+began+"; read line <"+gate))
	stop := make(chan struct{})
	var busy, all sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		busy.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if n%10_000 == 0 {
					busy.Go(runtime.LockOSThread) // its thread ends with it
				}
			}
		})
	}
	for range attempts {
		all.Go(func() {
			if out := pair.Handler.Execute(context.Background(), call()); out.Observed != handler.Succeeded {
				t.Errorf("outcome %+v", out)
			}
		})
	}
	arrived, err := os.OpenFile(began, os.O_RDWR, 0) // both ends: never at its end
	if err != nil {
		t.Fatal(err)
	}
	defer arrived.Close()
	if _, err := io.ReadFull(arrived, make([]byte, attempts)); err != nil {
		t.Fatal(err)
	}
	close(stop)
	busy.Wait()
	f, err := os.OpenFile(gate, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	say(f, strings.Repeat("\n", attempts))
	all.Wait()
}

func TestChildDiesWithTheDaemon(t *testing.T) {
	dead := pipe(t)
	daemon := exec.Command(os.Args[0])
	daemon.Env = append(os.Environ(), mortal+"=exec 9>"+dead+"; exec sleep 300")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dead) // returns when the child is there
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = daemon.Wait() // it was killed
	ended := make(chan struct{})
	go func() { swallow(f); close(ended) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the child lives on")
	}
}

func TestManyAttemptsAtOnce(t *testing.T) {
	pair := build(t, shell(`read line; echo "{\"key\":\"$OUTBOX_KEY\"}"`))
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			c := call()
			c.WireKey = fmt.Sprint("k", i)
			out := pair.Handler.Execute(context.Background(), c)
			if want := fmt.Sprintf(`{"key":"k%d"}`, i); string(out.Result) != want {
				t.Errorf("call %d: %+v", i, out)
			}
		})
	}
	all.Wait()
}
