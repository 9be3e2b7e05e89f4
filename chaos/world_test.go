package chaos_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/chaos"
)

// patience is how long anything may take that is not measured: a machine may be
// busy with other tests.
const patience = 40 * time.Second

// world is one database, one downstream, and what is needed to run daemons on
// them.
type world struct {
	t       *testing.T
	ctx     context.Context
	dir     string
	url     string // the witness's
	journal string
	daemon  chaos.Daemon
	client  *api.Client
}

// newWorld starts a witness. Its directory has a short name, for the socket, and
// stays when the test fails.
func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "obx")
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 9*time.Minute)
	w := &world{t: t, ctx: ctx, dir: dir, journal: filepath.Join(dir, "witness.jsonl")}
	w.daemon = chaos.Daemon{
		Argv: []string{binary}, Config: w.path("outboxd.yaml"), Socket: w.path("s"), Log: w.path("daemon.log"),
	}
	w.client = w.daemon.Client()
	t.Cleanup(func() {
		cancel()
		if !t.Failed() {
			_ = os.RemoveAll(dir)
			return
		}
		t.Logf("kept %s; the end of the daemon's log:\n%s", dir, tail(w.daemon.Log, 30))
	})
	w.url = w.startWitness()
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) startWitness() string {
	w.t.Helper()
	r, out, err := os.Pipe()
	must(w.t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asWitness+"="+w.journal)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	p, err := chaos.Start(cmd)
	must(w.t, err)
	w.t.Cleanup(p.Kill)
	must(w.t, out.Close())
	line, err := bufio.NewReader(r).ReadString('\n')
	must(w.t, err)
	must(w.t, r.Close())
	return strings.TrimSpace(line)
}

const baseConfig = `
database:  {path: %q}
listen:    {socket: %q, socket_mode: "0600"}
log:       {level: info, format: json}
operators: {uids: [%d]}
`

// configure writes the configuration: sections as they are, and the tools.
func (w *world) configure(sections string, tools ...string) {
	w.t.Helper()
	w.write(w.daemon.Config, w.daemon.Socket, sections, tools...)
}

func (w *world) write(config, socket, sections string, tools ...string) {
	w.t.Helper()
	text := fmt.Sprintf(baseConfig, w.path("outbox.db"), socket, os.Getuid()) + sections + "\ntools:\n"
	for _, tool := range tools {
		text += "  - " + tool + "\n"
	}
	must(w.t, os.WriteFile(config, []byte(text), 0o600))
}

// http is a tool at the witness: class is idempotent, queryable or opaque.
func (w *world) http(name, class string, behaviour chaos.Behaviour, more string) string {
	if more != "" {
		more = ", " + more
	}
	url := fmt.Sprintf("%s/%s/%s", w.url, class, behaviour)
	query := ""
	if class == "queryable" {
		query = fmt.Sprintf(`, query: {http: {url: "%s/{key}"}, not_before: 100ms}`, url)
	}
	return fmt.Sprintf(`{name: %s, effect: %s, http: {url: %q}%s%s}`, name, class, url, query, more)
}

// shell is a tool that is a shell script; $OUT is a file of the test's.
func (w *world) shell(name, class, script, more string) string {
	if more != "" {
		more = ", " + more
	}
	return fmt.Sprintf(`{name: %s, effect: %s, exec: {argv: [/bin/sh, -c, %q], env: [{name: OUT, value: %q}, {name: PATH}]}%s}`,
		name, class, script, w.path("out"), more)
}

// up starts the daemon and waits until it is ready.
func (w *world) up() *chaos.Running {
	w.t.Helper()
	return w.upWith(w.daemon)
}

func (w *world) upWith(d chaos.Daemon) *chaos.Running {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	r, err := d.Up(ctx)
	if r != nil {
		w.t.Cleanup(r.Kill)
	}
	if err != nil {
		w.t.Fatalf("daemon does not come up: %v\n%s", err, tail(d.Log, 5))
	}
	return r
}

// exit waits for the end of a process and returns its status.
func (w *world) exit(p *chaos.Process) int {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	code, err := p.Wait(ctx)
	must(w.t, err)
	return code
}

// down drains the daemon, which must end with 0, and audits the file.
func (w *world) down(r *chaos.Running) {
	w.t.Helper()
	r.Signal(syscall.SIGTERM)
	if code := w.exit(r.Process); code != 0 {
		w.t.Errorf("the daemon ended with %d after SIGTERM, want 0", code)
	}
	w.audit()
}

func (w *world) audit() {
	w.t.Helper()
	if out, errs, code := w.command("audit"); code != 0 {
		w.t.Errorf("audit exits with %d\n%s%s", code, out, errs)
	}
}

// command runs a one-shot command of the binary.
func (w *world) command(args ...string) (stdout, stderr string, code int) {
	w.t.Helper()
	return w.commandAs([]string{binary}, args...)
}

// commandAs is command with what stands before its flags.
func (w *world) commandAs(argv []string, args ...string) (stdout, stderr string, code int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	var out, errs strings.Builder
	cmd := exec.CommandContext(ctx, argv[0], slices.Concat(argv[1:], []string{"--config", w.daemon.Config}, args)...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &errs, chaos.Environment(os.Environ())
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatalf("run outboxd %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func body(tool, key, arguments string) api.Case {
	return api.Case{
		Principal: &api.Principal{Tenant: "acme", Subject: "test"}, IdempotencyKey: key,
		Call: api.CaseCall{Tool: tool, Arguments: jsontext.Value(arguments)},
	}
}

// submit submits once, over the socket, and returns the answer.
func (w *world) submit(tool, key string) api.Answer {
	w.t.Helper()
	a, err := w.client.Submit(w.ctx, body(tool, key, "{}"), 0)
	must(w.t, err)
	return a
}

// settled waits until nothing more happens to an operation by itself.
func (w *world) settled(ref string) api.Answer {
	w.t.Helper()
	a, err := w.client.Status(w.ctx, ref, patience)
	must(w.t, err)
	return a
}

// evidence is how many attempts of a kind an operation shows.
func (w *world) evidence(ref, kind string) int {
	w.t.Helper()
	list, err := w.client.Attempts(w.ctx, ref)
	must(w.t, err)
	n := 0
	for _, a := range list.Attempts {
		if a.Kind == kind {
			n++
		}
	}
	return n
}

func (w *world) metric(r *chaos.Running, name string) float64 {
	w.t.Helper()
	n, err := r.Metric(w.ctx, name)
	must(w.t, err)
	return n
}

// seen is what the witness has written down of a kind.
func (w *world) seen(kind chaos.Kind) []chaos.Record {
	w.t.Helper()
	all, err := chaos.ReadJournal(w.journal)
	must(w.t, err)
	return slices.DeleteFunc(all, func(r chaos.Record) bool { return r.Kind != kind })
}

// of is how many records of a kind the witness has for an operation. Questions
// name no operation: they are found by the key of its requests.
func (w *world) of(kind chaos.Kind, ref string) int {
	w.t.Helper()
	keys := map[string]bool{}
	for _, r := range w.seen(chaos.Asked) {
		if r.Operation == ref {
			keys[r.Key] = true
		}
	}
	return len(slices.DeleteFunc(w.seen(kind), func(r chaos.Record) bool { return !keys[r.Key] }))
}

// lines is what the scripts have written to $OUT.
func (w *world) lines() []string {
	text, err := os.ReadFile(w.path("out"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	must(w.t, err)
	return strings.Fields(string(text))
}

// until waits for a condition that no signal tells.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			w.t.Fatalf("%s: not within %s", what, patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (w *world) wantStatus(what string, a api.Answer, status, reason string) {
	w.t.Helper()
	if a.Status != status || a.Reason != reason {
		w.t.Errorf("%s: status %q, reason %q; want %q, %q", what, a.Status, a.Reason, status, reason)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func tail(path string, n int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.SplitAfter(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// seed is printed, so that a run can be told apart; OUTBOXD_SEED repeats one.
func seed(t *testing.T) int64 {
	n := time.Now().UnixNano()
	if s, err := strconv.ParseInt(os.Getenv("OUTBOXD_SEED"), 10, 64); err == nil {
		n = s
	}
	t.Logf("seed: OUTBOXD_SEED=%d", n)
	return n
}

// absent skips loudly: what is not shown here must not look as if it were.
func absent(t *testing.T, what string) {
	t.Helper()
	skipped(t.Name(), what)
	fmt.Fprintf(os.Stderr, "\n*** %s NOT SHOWN: %s\n\n", t.Name(), what)
	t.Skip(what)
}
