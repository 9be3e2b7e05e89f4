package handler_test

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/handler"
)

func TestProgramHasItsUmaskAndPriorityAndTheDaemonKeepsItsOwn(t *testing.T) {
	mask := fs.FileMode(0o027)
	tool := shell(`umask; nice; echo "[\"$(umask)\",$(nice)]"`)
	tool.Exec.Umask, tool.Exec.Nice = &mask, 7
	plain := shell(`echo "[\"$(umask)\",$(nice)]"`)
	before := build(t, plain).Handler.Execute(within(t, time.Minute), call())
	for range 5 {
		out := build(t, tool).Handler.Execute(within(t, time.Minute), call())
		if out.Observed != handler.Succeeded || string(out.Result) != `["0027",7]` {
			t.Errorf("outcome %+v, result %s", out, out.Result)
		}
		after := build(t, plain).Handler.Execute(within(t, time.Minute), call())
		if string(after.Result) != string(before.Result) || string(after.Result) == string(out.Result) {
			t.Errorf("a program without both runs with %s, before it was %s", after.Result, before.Result)
		}
	}
}

// The thread of such a program ends with the attempt, and not before: the death
// signal is that of the thread.
func TestProgramOfItsOwnThreadIsNotEndedByOthers(t *testing.T) {
	tool := shell(`for i in 1 2 3 4 5; do echo x; done; echo 7`)
	tool.Exec.Nice = 1
	pair := build(t, tool)
	for range 30 {
		if out := pair.Handler.Execute(within(t, time.Minute), call()); string(out.Result) != "7" {
			t.Fatalf("outcome %+v", out)
		}
	}
}

func TestProgramRunsAsItsUser(t *testing.T) {
	tool := shell(`echo "[$(id -u),$(id -g),\"$(id -G)\"]"`)
	tool.Exec.User = "nobody"
	out := build(t, tool).Handler.Execute(within(t, time.Minute), call())
	if os.Geteuid() != 0 {
		if out.Observed != handler.NotSent || out.Code != "not_permitted" {
			t.Errorf("without the right to it: %+v", out)
		}
		return
	}
	if out.Observed != handler.Succeeded || !strings.HasPrefix(string(out.Result), "[65534,65534,") {
		t.Errorf("outcome %+v, result %s", out, out.Result)
	}
}

func TestUserThatDoesNotExistIsRefused(t *testing.T) {
	tool := shell("exit 0")
	tool.Exec.User = "no-such-user-anywhere"
	if _, err := handler.Build(tool); err == nil {
		t.Error("built")
	}
}

// Whoever left the group, by whatever way, is dead when the attempt is.
func TestWhoLeftTheGroupIsEndedWithTheAttempt(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		want   handler.Observed
	}{
		"holds the pipe":             {"(setsid sh -c 'exec 9>%s; exec sleep 300') & echo ok", handler.Succeeded},
		"holds nothing, limit":       {"setsid sh -c 'exec 9>%s; exec sleep 300' >/dev/null 2>&1 </dev/null & exec sleep 300", handler.MayHaveHappened},
		"holds nothing, try again":   {"setsid sh -c 'exec 9>%s; exec sleep 300' >/dev/null 2>&1 </dev/null & exit 75", handler.TryAgain},
		"a daemon's double fork":     {"setsid sh -c '(sh -c \"exec 9>%s; exec sleep 300\") & exit' >/dev/null 2>&1 </dev/null; exec sleep 300", handler.MayHaveHappened},
		"ignores the polite signals": {"setsid sh -c 'trap \"\" TERM HUP INT; exec 9>%s; sleep 300; sleep 300' & exec sleep 300", handler.MayHaveHappened},
	} {
		dead := pipe(t)
		f, err := os.OpenFile(dead, os.O_RDWR, 0) // so that nobody waits to open it
		if err != nil {
			t.Fatal(err)
		}
		c := call()
		c.Token++
		out := build(t, shell(fmt.Sprintf(tt.script, dead))).Handler.Execute(within(t, 700*time.Millisecond), c)
		if out.Observed != tt.want || !out.Answered {
			t.Errorf("%s: got %+v, want %s, known to be over", name, out, tt.want)
		}
		alone(t, name, dead)
		f.Close()
	}
}

// alone waits until nobody but this process has the pipe open.
func alone(t *testing.T, name, path string) {
	t.Helper()
	var others []string
	for last := time.Now().Add(20 * time.Second); ; {
		if others = holders(t, path); len(others) == 0 || time.Now().After(last) {
			break
		}
	}
	if len(others) > 0 {
		t.Errorf("%s: somebody lives on: %v", name, others)
	}
}

// holders are the descriptors of other processes that lead to the path.
func holders(t *testing.T, path string) (list []string) {
	t.Helper()
	own := fmt.Sprintf("/proc/%d/", os.Getpid())
	found, err := fs.Glob(os.DirFS("/"), "proc/[0-9]*/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range found {
		to, err := os.Readlink("/" + fd)
		if err == nil && to == path && !strings.HasPrefix("/"+fd, own) {
			list = append(list, "/"+fd)
		}
	}
	return list
}

// What cannot be found is said to be not over: nothing more is promised.
func TestWhoClearedItsEnvironmentIsNotCalledOver(t *testing.T) {
	dead := pipe(t)
	f, err := os.OpenFile(dead, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tool := shell("(env -i setsid sh -c 'echo $$ >" + dead + "; exec sleep 300') & echo ok")
	out := build(t, tool).Handler.Execute(within(t, 5*time.Second), call())
	var pid int
	if _, err := fmt.Fscan(f, &pid); err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("the child that left: %v", err)
	}
	if out.Observed != handler.Succeeded || out.Answered || out.Excerpt != "ok" {
		t.Errorf("outcome %+v, want succeeded, not known to be over", out)
	}
}

func TestConfiguredStandingReachesTheProgram(t *testing.T) {
	cfg, err := config.Parse("test", []byte(`
tools:
  - name: p
    exec: {argv: [/bin/sh, -c, 'echo "[\"$(umask)\",$(nice)]"'], umask: "0077", nice: 3}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	out := build(t, cfg.Tools[0]).Handler.Execute(within(t, time.Minute), call())
	if string(out.Result) != `["0077",3]` {
		t.Errorf("outcome %+v", out)
	}
}
