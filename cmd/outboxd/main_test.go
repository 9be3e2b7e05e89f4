package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
)

// command runs one and returns its exit status and what it wrote.
func command(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, talk bytes.Buffer
	status = Main(ctx, args, strings.NewReader(""), &out, &talk, nil)
	return status, out.String(), talk.String()
}

// configured writes a config with one opaque tool at the witness's /slow.
func configured(t *testing.T, w *witness) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "outboxd.yaml")
	text := fmt.Sprintf("database: {path: %[1]s/o.db}\nlisten: {socket: %[1]s/o.sock}\noperators: {uids: [%[2]d]}\n"+
		"tools:\n  - {name: slow, effect: opaque, http: {url: %[3]q}}\n", dir, os.Getuid(), w.server.URL+"/slow")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatalf("write config: %v", err)
	}
	return path
}

func TestASecondSignalCutsOffWhatRunsAndThatIsRecorded(t *testing.T) {
	w := newWitness()
	defer w.close()
	cfg := configured(t, w)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan int, 1)
	var log string
	go func() {
		status, _, stderr := command(ctx, "--config", cfg, "run")
		log = stderr
		ended <- status
	}()
	submit := []string{"--config", cfg, "submit", "--tenant", "a", "--subject", "b", "--tool", "slow", "--key", "k"}
	if status, _, stderr := command(ctx, submit...); status != 0 {
		t.Fatalf("submit: exit status %d: %s", status, stderr)
	}
	<-w.arrived
	stop() // as the first signal does
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatalf("signal: %v", err)
	}
	if got := <-ended; got != exitCutOff {
		t.Errorf("run: exit status %d, want %d: %s", got, exitCutOff, log)
	}
	if !strings.Contains(log, `{"error":{"code":"DRAIN_CUT_OFF"`) {
		t.Errorf("run does not say that it was cut off: %s", log)
	}
	status, out, _ := command(context.Background(), "--config", cfg, "status", "--tool", "slow", "--key", "k")
	if status != exitNo || !strings.Contains(out, `"status":"unknown","gate":"BLOCK","code":"OUTCOME_UNKNOWN"`) {
		t.Errorf("status: exit status %d, %s, want unknown", status, out)
	}
}

func TestLinesOfTheJournalHaveAPriority(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "journal")
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatalf("stat: %v", err)
	}
	a := &app{stderr: f, env: []string{fmt.Sprintf("JOURNAL_STREAM=%d:%d", st.Dev, st.Ino)}}
	log, err := a.logger(config.Log{Level: "info", Format: "auto"})
	if err != nil {
		t.Fatalf("make logger: %v", err)
	}
	log.With(zap.String("tool", "mail")).Warn("slow", zap.String("error", strings.Repeat("x", 3*longestLine)))
	log.Info("next")
	log.Debug("never")
	a.end(errors.New("ended"))
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(lines) != 3 || lines[2] != `<3>{"error":{"code":"INTERNAL_ERROR","message":"ended"}}` || !strings.HasPrefix(lines[0], `<4>{"level":"warn"`) || !strings.HasPrefix(lines[1], `<6>{`) {
		t.Fatalf("got %q, want a warning with <4>, an info with <6> and the error with <3>", lines)
	}
	if len(lines[0]) > longestLine {
		t.Errorf("a value of %d bytes was logged whole", 3*longestLine)
	}
}

func TestWhyTheSocketCannotBeMade(t *testing.T) {
	for cause, want := range map[error]coded{
		syscall.EACCES:     {"SOCKET_UNUSABLE", "this user may not create the socket (listen.socket) in its directory"},
		syscall.ENOENT:     {"SOCKET_UNUSABLE", "the directory of the socket (listen.socket) does not exist, or is none"},
		syscall.ENOSPC:     {"DISK_FULL", "there is no space for the socket (listen.socket) in its directory"},
		api.ErrSocketInUse: {"ALREADY_RUNNING", api.ErrSocketInUse.Error()},
	} {
		if got := failureOf(&daemon.ListenError{Err: fmt.Errorf("listen on socket: %w", cause)}); *got != want {
			t.Errorf("%v: got %v, want %v", cause, got, &want)
		}
	}
}

func TestABriefCellIsCut(t *testing.T) {
	for in, want := range map[string]string{
		"order-17":               "order-17",
		strings.Repeat("é", 60):  strings.Repeat("é", 60),
		strings.Repeat("é", 61):  strings.Repeat("é", 57) + "...",
		strings.Repeat("\n", 31): strings.Repeat(`\n`, 28) + `\...`,
	} {
		if got := brief(in); got != want {
			t.Errorf("brief(%q) is %q, want %q", in, got, want)
		}
	}
}

func TestACellOnlyPrints(t *testing.T) {
	for in, want := range map[string]string{
		"order-17":      "order-17",
		"größe 🙂":       "größe 🙂",
		"a\x1b[31mb\n":  `a\x1b[31mb\n`,
		"a\u009b2Jb":    `a\u009b2Jb`,
		"a\u202egnp.b":  `a\u202egnp.b`,
		"broken \xffx":  "broken \ufffdx",
		"tab\there":     `tab\there`,
		"zero\u200bgap": `zero\u200bgap`,
	} {
		if got := cell(in); got != want {
			t.Errorf("cell(%q) is %q, want %q", in, got, want)
		}
	}
}
