package booted

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// tell tells the stories in their order, on one machine.
func tell(t *testing.T) {
	g := install(t)
	for _, story := range []struct {
		name string
		tell func(*guest)
	}{
		{"a start that cannot go on yet asks for time", waits},
		{"it starts and is ready", start},
		{"it comes back after kill -9", killed},
		{"the watchdog ends a process that stands still", stopped},
		{"the watchdog ends a process of which one loop is stuck", stuck},
		{"a reload is waited for, whatever becomes of it", reloaded},
		{"a stop waits for handlers of five seconds", drained},
		{"a drain that is longer than TimeoutStopSec is not killed", cutOff},
		{"a second signal speeds a drain up and loses nothing", hurried},
		{"members of the group use the socket and not the file", members},
		{"data of an earlier installation is taken along", inherited},
		{"an application's group shares the file", shared},
		{"a wrong config is tried once", wrong},
		{"the journal is readable", journal},
	} {
		if !t.Run(story.name, func(t *testing.T) { g.T = t; story.tell(g) }) {
			return
		}
	}
}

// waits: the disk is full, for longer than a start may take.
func waits(g *guest) {
	g.override("TimeoutStartSec=2s")
	must(g.T, os.MkdirAll("/var/lib/outboxd", 0o700))
	g.ok("mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "full", "/var/lib/outboxd")
	g.run("dd", "if=/dev/zero", "of=/var/lib/outboxd/filler", "bs=64k", "status=none") // until there is no space
	g.ok("systemctl", "start", "--no-block", "outboxd")
	g.eventually("it waits", func() bool { return g.unit("StatusText") == "waiting: the disk is full" })
	pid, began := g.unit("MainPID"), time.Now()
	g.eventually("twice the limit is over", func() bool { return time.Since(began) > 4*time.Second })
	g.wants("ActiveState", "activating")
	g.wants("MainPID", pid)
	g.ok("rm", "/var/lib/outboxd/filler")
	g.eventually("it is ready", func() bool { return g.unit("SubState") == "running" })
	g.wants("MainPID", pid)
	g.ok("systemctl", "stop", "outboxd")
	g.ok("umount", "/var/lib/outboxd")
	g.override("")
}

func start(g *guest) {
	g.ok("systemctl", "start", "outboxd")
	g.runs()
	g.wants("StatusText", "accepting and working")
	g.wants("NRestarts", "0")
	for path, want := range map[string]string{
		"/var/lib/outboxd": "700 outboxd outboxd", "/var/lib/outboxd/outbox.db": "600 outboxd outboxd",
		"/run/outboxd": "750 outboxd outboxd", "/run/outboxd/outboxd.sock": "660 outboxd outboxd",
		"/etc/outboxd": "750 root outboxd",
	} {
		if got := strings.TrimSpace(g.ok("stat", "-c", "%a %U %G", path)); got != want {
			g.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	g.become("succeeded", append(g.submit("pay", 3), g.submit("program", 1)...)...)
}

func killed(g *guest) {
	pid := g.runs()
	before := g.arrived()
	refs := g.submit("again", 3)
	g.eventually("three requests", func() bool { return g.arrived() == before+3 })
	g.ok("systemctl", "kill", "--signal=KILL", "--kill-whom=main", "outboxd")
	g.restarted(pid)
	g.wants("NRestarts", "1")
	g.become("succeeded", refs...)
}

// A watchdog that does not make a test wait for a minute.
const shortWatchdog = "WatchdogSec=2s"

func stopped(g *guest) {
	g.override(shortWatchdog)
	g.ok("systemctl", "restart", "outboxd")
	pid := g.runs()
	g.ok("kill", "-STOP", pid)
	g.restarted(pid)
	g.says("Watchdog timeout")
}

// stuck delays each sync of the daemon's, as a disk that does not answer: its
// committer stands, everything else moves.
func stuck(g *guest) {
	pid := g.runs()
	strace := exec.Command("strace", "-f", "-qq", "-o", "/dev/null", "-p", pid,
		"-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_enter=60s")
	must(g.T, strace.Start())
	free := sync.OnceFunc(func() { _ = strace.Process.Kill(); _ = strace.Wait() })
	defer free()
	g.eventually("strace holds it", func() bool {
		text, err := os.ReadFile("/proc/" + pid + "/status")
		return err == nil && !strings.Contains(string(text), "TracerPid:\t0\n")
	})
	submit := exec.Command("outboxd", "submit", "--tenant", "acme", "--subject", "test", "--tool", "pay", "--key", "stuck")
	must(g.T, submit.Start())
	g.eventually("the watchdog", func() bool { return g.unit("Result") == "watchdog" })
	free() // whom strace holds cannot end
	g.restarted(pid)
	_ = submit.Wait() // nobody knows what it is told
	g.says(`"loop":"committer"`)
}

func reloaded(g *guest) {
	pid := g.runs()
	reload := func(want int) {
		g.Helper()
		began := time.Now()
		if code, out := g.run("systemctl", "reload", "outboxd"); code != want {
			g.Fatalf("reload: exit status %d, want %d: %s", code, want, out)
		}
		if took := time.Since(began); took > 10*time.Second {
			g.Errorf("the reload took %s", took)
		}
		if now := g.runs(); now != pid {
			g.Fatalf("process %s has become %s", pid, now)
		}
	}
	g.configure("", `  - {name: new, effect: idempotent, http: {url: "`+g.url+`/now"}}`)
	reload(0)
	g.become("succeeded", g.submit("new", 1)...)
	g.writeConfig("worker: {concurrency: many}\n")
	reload(1)
	if status := g.unit("StatusText"); !strings.Contains(status, "not reloaded") || !strings.Contains(status, "worker.concurrency") {
		g.Errorf("after a broken reload the status is %q", status)
	}
	g.become("succeeded", g.submit("new", 1)...)
	both(g, func() { g.run("systemctl", "reload", "outboxd") })
	g.runs()
	g.ok("systemctl", "kill", "--signal=HUP", "--kill-whom=main", "outboxd")
	g.configure("", "")
	reload(0)
	g.wants("StatusText", "accepting and working")
	both(g, func() { g.ok("systemctl", "reload", "outboxd") })
	reload(0)
}

// both does something twice at once.
func both(g *guest, do func()) {
	g.Helper()
	var two sync.WaitGroup
	two.Go(do)
	two.Go(do)
	two.Wait()
}

func drained(g *guest) {
	before := g.arrived()
	refs := append(g.submit("slow", 3), g.submit("program", 3)...)
	g.eventually("six handlers", func() bool { return g.arrived() == before+6 })
	g.ok("systemctl", "stop", "outboxd")
	g.wants("Result", "success")
	g.wants("ExecMainStatus", "0")
	g.ok("systemctl", "start", "outboxd")
	g.become("succeeded", refs...)
	for _, ref := range refs {
		if a := g.answer(g.ok("outboxd", "status", ref, "-o", "json")); a.Attempts != 1 {
			g.Errorf("%s was attempted %d times, want once", ref, a.Attempts)
		}
	}
}

func cutOff(g *guest) {
	g.override("TimeoutStopSec=2s")
	g.configure("drain_timeout: 5s", "")
	g.ok("systemctl", "restart", "outboxd")
	ref := inFlight(g)
	g.ok("systemctl", "stop", "outboxd")
	g.wants("Result", "success")
	g.wants("ExecMainCode", "1") // it exited: no signal ended it
	g.wants("ExecMainStatus", "3")
	g.ok("systemctl", "start", "outboxd")
	g.become("unknown", ref)
}

// inFlight is an operation whose handler takes a minute, and runs.
func inFlight(g *guest) string {
	g.Helper()
	before := g.arrived()
	ref := g.submit("long", 1)[0]
	g.eventually("a request", func() bool { return g.arrived() == before+1 })
	return ref
}

func hurried(g *guest) {
	g.override("")
	g.configure("drain_timeout: 60s", "")
	g.ok("systemctl", "restart", "outboxd")
	ref := inFlight(g)
	g.ok("systemctl", "stop", "--no-block", "outboxd")
	g.eventually("it drains", func() bool { return g.unit("StatusText") == "draining" })
	began := time.Now()
	g.ok("systemctl", "kill", "--signal=TERM", "--kill-whom=main", "outboxd")
	g.eventually("it has stopped", func() bool { return g.unit("ActiveState") == "inactive" })
	if took := time.Since(began); took > 10*time.Second {
		g.Errorf("after the second signal it took %s", took)
	}
	g.wants("ExecMainStatus", "3")
	g.configure("", "")
	g.ok("systemctl", "start", "outboxd")
	g.become("unknown", ref)
}

func members(g *guest) {
	must(g.T, os.MkdirAll("/etc/sysusers.d", 0o755))
	must(g.T, os.WriteFile("/etc/sysusers.d/test.conf", []byte("u alice -\nm alice outboxd\nu bob -\n"), 0o644))
	g.ok("systemd-sysusers")
	if out := g.ok("runuser", "-u", "alice", "--", "outboxd", "list", "-o", "json"); !strings.Contains(out, "status_ref") {
		g.Errorf("an administrator in the group sees %s", out)
	}
	if code, _ := g.run("runuser", "-u", "alice", "--", "ls", "/var/lib/outboxd"); code == 0 {
		g.Error("an administrator in the group can reach the file")
	}
	if code, out := g.run("runuser", "-u", "bob", "--", "outboxd", "--socket", "/run/outboxd/outboxd.sock", "list"); code == 0 || !strings.Contains(out, "PERMISSION_DENIED") {
		g.Errorf("somebody else gets exit status %d: %s", code, out)
	}
}

// inherited: installations of before had the files of another uid, or of a dynamic
// user behind a link to a private directory.
func inherited(g *guest) {
	ref := g.submit("pay", 1)[0]
	g.become("succeeded", ref)
	g.ok("systemctl", "stop", "outboxd")
	g.ok("chown", "-R", "4321:4321", "/var/lib/outboxd")
	g.ok("systemctl", "start", "outboxd")
	g.become("succeeded", ref)
	g.ok("systemctl", "stop", "outboxd")
	g.ok("mkdir", "-m", "700", "-p", "/var/lib/private")
	g.ok("mv", "/var/lib/outboxd", "/var/lib/private/outboxd")
	g.ok("ln", "-s", "private/outboxd", "/var/lib/outboxd")
	g.ok("chown", "-R", "61234:61234", "/var/lib/private/outboxd")
	g.ok("systemctl", "start", "outboxd")
	g.become("succeeded", ref)
	if got := strings.TrimSpace(g.ok("stat", "-c", "%F %U", "/var/lib/outboxd")); got != "directory outboxd" {
		g.Errorf("the state directory is a %s, want a directory of outboxd's", got)
	}
}

// shared: the drop-in and the directory of docs/database.md.
func shared(g *guest) {
	must(g.T, os.WriteFile("/etc/sysusers.d/shop.conf", []byte("g shop-db -\nu shop -\nm shop shop-db\n"), 0o644))
	g.ok("systemd-sysusers")
	g.ok("install", "-d", "-o", "outboxd", "-g", "shop-db", "-m", "2770", "/srv/shop")
	g.override("SupplementaryGroups=shop-db\nReadWritePaths=/srv/shop\nSystemCallFilter=@chown")
	g.configureAt("/srv/shop/shop.db, application_group: shop-db", "", "")
	g.ok("runuser", "-u", "outboxd", "--", "outboxd", "--db", "/srv/shop/shop.db", "db", "init")
	g.ok("chgrp", "outboxd", "/srv/shop/shop.db") // as it was before
	g.ok("systemctl", "restart", "outboxd")
	for _, file := range []string{"shop.db", "shop.db-wal", "shop.db-shm"} {
		if got := strings.TrimSpace(g.ok("stat", "-c", "%a %U %G", "/srv/shop/"+file)); got != "660 outboxd shop-db" {
			g.Errorf("%s is %s, want 660 outboxd shop-db", file, got)
		}
	}
	g.ok("runuser", "-u", "shop", "--", "sqlite3", "/srv/shop/shop.db", `.timeout 5000`,
		`INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments) VALUES ('acme', 'shop', 'pay', 'inserted', '{}')`)
	g.eventually("the row is delivered", func() bool {
		_, out := g.run("outboxd", "status", "--tool", "pay", "--key", "inserted", "-o", "json")
		return strings.Contains(out, `"status":"succeeded"`)
	})
	g.override("")
	g.configure("", "")
	g.ok("systemctl", "restart", "outboxd")
}

func wrong(g *guest) {
	g.ok("systemctl", "stop", "outboxd")
	before := g.unit("NRestarts")
	g.writeConfig("worker: {concurrency: many}\n")
	if code, _ := g.run("systemctl", "start", "outboxd"); code == 0 {
		g.Error("a start with a wrong config succeeds")
	}
	g.wants("ActiveState", "failed")
	g.wants("SubState", "failed") // and not auto-restart
	g.wants("ExecMainStatus", "78")
	if got := g.unit("NRestarts"); got != "0" && got != before {
		g.Errorf("it was restarted: %s times, %s before", got, before)
	}
	g.says("worker.concurrency")
	g.configure("", "")
	g.ok("systemctl", "start", "outboxd")
	g.runs()
	if keys := g.twice(); len(keys) > 3 { // those of the kill: their class allows it
		g.Errorf("%d keys took effect more than once: %q", len(keys), keys)
	}
}

// says checks that the journal of the service holds a text.
func (g *guest) says(text string) {
	g.Helper()
	if out := g.ok("journalctl", "-u", "outboxd", "--no-pager", "-o", "cat"); !strings.Contains(out, text) {
		g.Errorf("the journal does not say %s", text)
	}
}

// line is one of the journal.
type line struct {
	Priority string          `json:"PRIORITY"`
	Message  json.RawMessage `json:"MESSAGE"`
	Program  string          `json:"SYSLOG_IDENTIFIER"`
}

// Every line of the daemon's is JSON of its own, with the priority of its level.
func journal(g *guest) {
	want := map[string]string{"error": "3", "warn": "4", "info": "6", "debug": "7"}
	found := map[string]int{}
	out := g.ok("journalctl", "-u", "outboxd", "--no-pager", "-o", "json", "-a")
	for _, raw := range bytes.Split([]byte(strings.TrimSpace(out)), []byte("\n")) {
		var l line
		var text string
		if err := json.Unmarshal(raw, &l); err != nil || json.Unmarshal(l.Message, &text) != nil {
			g.Fatalf("the journal holds %s: %v", raw, err)
		}
		if l.Program != "outboxd" || !strings.HasPrefix(text, "{") {
			continue // systemd's own, or the stack of a process that the watchdog ended
		}
		var entry struct{ Level, Msg, Time string }
		if err := json.Unmarshal([]byte(text), &entry); err != nil {
			g.Errorf("not JSON: %s", text)
		}
		if entry.Level == "" {
			continue // the last word of a run that failed
		}
		if len(text) >= 8<<10 || entry.Msg == "" || want[entry.Level] != l.Priority {
			g.Errorf("%d bytes, level %s with priority %s: %s", len(text), entry.Level, l.Priority, text)
		}
		found[entry.Level]++
	}
	for _, level := range []string{"error", "warn", "info"} {
		if found[level] == 0 {
			g.Errorf("the journal has no line of level %s: %v", level, found)
		}
	}
}
