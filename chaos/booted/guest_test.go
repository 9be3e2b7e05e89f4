package booted

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long anything may take that is not measured.
const patience = 40 * time.Second

// handlerTime is how long the slow handlers take.
const handlerTime = 5 * time.Second

// guest is the container as seen from inside, with a downstream.
type guest struct {
	*testing.T
	url   string
	group string // the gid of outboxd
	keys  int

	mu      sync.Mutex // guards what follows
	effects map[string]int
	begun   int
}

const (
	socketPath = "/run/outboxd/outboxd.sock"
	configPath = "/etc/outboxd/outboxd.yaml"
	dropIns    = "/etc/systemd/system/outboxd.service.d"
	program    = "/opt/run"
	journalOf  = "/var/lib/outboxd/effects" // of program
)

// install does what a package's installation does, but for the files.
func install(t *testing.T) *guest {
	g := &guest{T: t, effects: map[string]int{}}
	g.ok("systemd-sysusers")
	g.ok("systemd-tmpfiles", "--create", "/usr/lib/tmpfiles.d/outboxd.conf")
	group, err := user.LookupGroup("outboxd")
	must(t, err)
	g.group = group.Gid
	srv := httptest.NewServer(g)
	t.Cleanup(srv.CloseClientConnections)
	g.url = srv.URL
	script := fmt.Sprintf("#!/bin/sh\necho begun >>%[1]s\nsleep 5\necho \"$OUTBOX_KEY\" >>%[1]s\n", journalOf)
	must(t, os.WriteFile(program, []byte(script), 0o755))
	g.configure("", "")
	return g
}

// ServeHTTP is the downstream: an effect at each request, and an answer after it.
func (g *guest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.begun++
	g.effects[r.Header.Get("Idempotency-Key")]++
	g.mu.Unlock()
	wait := map[string]time.Duration{"/brief": time.Second, "/slow": handlerTime, "/long": time.Minute}[r.URL.Path]
	select {
	case <-time.After(wait):
	case <-r.Context().Done():
	}
	w.WriteHeader(http.StatusOK)
}

// configure writes the config: worker is its section, more the tools that are new.
func (g *guest) configure(worker, more string) {
	g.Helper()
	g.configureAt("/var/lib/outboxd/outbox.db", worker, more)
}

func (g *guest) configureAt(database, worker, more string) {
	g.Helper()
	text := fmt.Sprintf(`
database: {path: %[6]s}
listen: {socket: /run/outboxd/outboxd.sock}
worker: {%[1]s}
lease: {ttl: 5s}
operators: {uids: [0], gids: [%[2]s]}
tools:
  - {name: pay, effect: idempotent, http: {url: "%[3]s/now"}}
  - {name: again, effect: idempotent, http: {url: "%[3]s/brief"}}
  - {name: slow, effect: opaque, http: {url: "%[3]s/slow"}}
  - {name: program, effect: opaque, exec: {argv: [%[4]s]}}
  - {name: long, effect: opaque, http: {url: "%[3]s/long"}, timeout: 2m}
%[5]s
`, worker, g.group, g.url, program, more, database)
	g.writeConfig(text)
}

func (g *guest) writeConfig(text string) {
	g.Helper()
	must(g.T, os.WriteFile(configPath, []byte(text), 0o640))
	g.ok("chgrp", "outboxd", configPath)
}

// override replaces settings of the unit.
func (g *guest) override(lines string) {
	g.Helper()
	must(g.T, os.MkdirAll(dropIns, 0o755))
	must(g.T, os.WriteFile(dropIns+"/test.conf", []byte("[Service]\n"+lines+"\n"), 0o644))
	g.ok("systemctl", "daemon-reload")
}

// run runs a command and returns its exit status and all it said.
func (g *guest) run(argv ...string) (int, string) {
	g.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if end, ok := errors.AsType[*exec.ExitError](err); ok {
		return end.ExitCode(), string(out)
	}
	must(g.T, err)
	return 0, string(out)
}

// ok runs a command that must succeed.
func (g *guest) ok(argv ...string) string {
	g.Helper()
	code, out := g.run(argv...)
	if code != 0 {
		_, said := g.run("journalctl", "-u", "outboxd", "-n", "20", "--no-pager", "-o", "short-monotonic")
		g.Fatalf("%q: exit status %d\n%s\n%s", argv, code, out, said)
	}
	return out
}

// unit is a property of the service.
func (g *guest) unit(property string) string {
	g.Helper()
	return strings.TrimSpace(g.ok("systemctl", "show", "outboxd", "--value", "-p", property))
}

// runs checks that the service does, and returns its process id.
func (g *guest) runs() string {
	g.Helper()
	g.wants("ActiveState", "active")
	g.wants("SubState", "running")
	return g.unit("MainPID")
}

func (g *guest) wants(property, want string) {
	g.Helper()
	if got := g.unit(property); got != want {
		_, said := g.run("systemctl", "status", "outboxd", "--no-pager", "-n", "30")
		g.Fatalf("%s is %q, want %q; %s", property, got, want, said)
	}
}

// submit accepts operations of a tool and returns their status_refs.
func (g *guest) submit(tool string, n int) (refs []string) {
	g.Helper()
	for range n {
		g.keys++
		a := g.answer(g.ok("outboxd", "--socket", socketPath, "submit", "--tenant", "acme", "--subject", "test", "--tool", tool,
			"--key", fmt.Sprintf("order-%d", g.keys), "-o", "json"))
		refs = append(refs, a.Ref)
	}
	return refs
}

type answer struct {
	Ref      string `json:"status_ref"`
	Status   string `json:"status"`
	Attempts int    `json:"attempts"`
}

func (g *guest) answer(text string) (a answer) {
	g.Helper()
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		g.Fatalf("%v: %s", err, text)
	}
	return a
}

// become waits until all are in this state.
func (g *guest) become(status string, refs ...string) {
	g.Helper()
	for _, ref := range refs {
		g.eventually(ref+" is "+status, func() bool {
			_, out := g.run("outboxd", "--socket", socketPath, "status", ref, "-o", "json")
			a := answer{}
			return json.Unmarshal([]byte(out), &a) == nil && a.Status == status
		})
	}
}

func (g *guest) eventually(what string, ok func() bool) {
	g.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-end:
			g.Fatalf("%s: not within %s; %s", what, patience, g.ok("journalctl", "-u", "outboxd", "-n", "40", "--no-pager", "-o", "short-monotonic"))
		}
	}
}

// restarted waits until the service runs in another process than before.
func (g *guest) restarted(pid string) {
	g.Helper()
	g.eventually("a restart", func() bool {
		now := g.unit("MainPID")
		return now != "0" && now != pid && g.unit("SubState") == "running"
	})
}

// arrived is how many requests the downstream has got, and programs were started.
func (g *guest) arrived() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	text, _ := os.ReadFile(journalOf) // not there: none was
	return g.begun + strings.Count(string(text), "begun\n")
}

// twice are the keys that took effect more than once at the downstream, and
// those of the program.
func (g *guest) twice() (keys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[string]int{}
	for key, n := range g.effects {
		all[key] += n
	}
	text, _ := os.ReadFile(journalOf) // as in arrived
	for line := range strings.Lines(string(text)) {
		if line != "begun\n" {
			all[line]++
		}
	}
	for key, n := range all {
		if n > 1 {
			keys = append(keys, key)
		}
	}
	return keys
}
