package chaos_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/chaos"
)

// asUser is the binary run as somebody else.
func (w *world) asUser(uid, gid int) []string {
	w.t.Helper()
	if os.Getuid() != 0 {
		absent(w.t, "commands of another user: only root runs them")
	}
	must(w.t, os.Chmod(w.dir, 0o755))
	own := w.path("outboxd")
	if _, err := os.Stat(own); err != nil {
		text, err := os.ReadFile(binary)
		must(w.t, errors.Join(err, os.WriteFile(own, text, 0o755)))
	}
	return []string{"setpriv", fmt.Sprint("--reuid=", uid), fmt.Sprint("--regid=", gid), "--clear-groups", own}
}

const service, visitor, sharing = 65534, 4712, 4713 // two users and a group

// serviceFiles gives a directory of its own to the database and the socket.
func (w *world) serviceFiles(mode os.FileMode, gid int, sections string) {
	w.t.Helper()
	dir := w.path("d")
	must(w.t, errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, service, gid), os.Chmod(dir, mode)))
	text := fmt.Sprintf("database: {path: %q%s}\nlisten: {socket: %q, socket_mode: \"0666\"}\nlog: {format: json}\ntools:\n  - %s\n",
		filepath.Join(dir, "outbox.db"), sections, filepath.Join(dir, "s"), w.http("idem", "idempotent", chaos.Now, ""))
	must(w.t, os.WriteFile(w.daemon.Config, []byte(text), 0o644))
	w.daemon.Socket = filepath.Join(dir, "s")
	w.client = w.daemon.Client()
	must(w.t, os.WriteFile(w.daemon.Log, nil, 0o666))
}

// TestAdministratorBesideTheService: root's commands on the service's file leave
// nothing that the service could not write, say whom to run as, and work through
// the socket.
func TestAdministratorBesideTheService(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.daemon.Argv = w.asUser(service, service)
	w.serviceFiles(0o755, service, "")
	if _, errs, code := w.command("db", "init"); code != 2 || codeOf(errs) != "WRONG_USER" {
		t.Errorf("root's init in the service's directory: %d %s", code, errs)
	}
	r := w.up()
	w.settled(w.submit("idem", "one").StatusRef)
	if out, errs, code := w.command("list"); code != 0 || !strings.Contains(out, "one") {
		t.Errorf("list through the socket: %d %s%s", code, out, errs)
	}
	r.Kill()
	before := names(t, w.path("d"))
	for _, args := range [][]string{{"list"}, {"submit", "--tenant", "a", "--subject", "b", "--tool", "idem", "--key", "k"}, {"audit"}, {"db", "purge"}, {"db", "migrate"}, {"run"}} {
		if _, errs, code := w.command(args...); code != 2 || codeOf(errs) != "WRONG_USER" || !strings.Contains(errs, "run as nobody") {
			t.Errorf("root's %s while the daemon is stopped: %d %s", args[0], code, errs)
		}
	}
	equal(t, "files beside the database", names(t, w.path("d")), before)
	r = w.up()
	w.wantStatus("after it", w.settled(w.submit("idem", "two").StatusRef), "succeeded", "")

	// A directory in which nothing can be made: looking works through the daemon only.
	must(t, os.Chmod(w.path("d"), 0o555))
	user := func(args ...string) (string, string, int) { return w.commandAs(w.daemon.Argv, args...) }
	if out, errs, code := user("list"); code != 0 || !strings.Contains(out, "two") {
		t.Errorf("list beside the daemon: %d %s%s", code, out, errs)
	}
	r.Signal(15)
	w.exit(r.Process)
	for _, suffix := range []string{"-wal", "-shm"} {
		must(t, os.Remove(filepath.Join(w.path("d"), "outbox.db"+suffix))) // it could not remove them itself
	}
	for _, args := range [][]string{{"list"}, {"run"}} {
		if _, errs, code := user(args...); code != 2 || codeOf(errs) != "DATABASE_READ_ONLY" {
			t.Errorf("%s in a directory that cannot be written: %d %s", args[0], code, errs)
		}
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	var all []string
	for _, e := range list {
		if e.Name() != "s" {
			all = append(all, e.Name())
		}
	}
	return strings.Join(all, " ")
}

// TestApplicationOfAnotherUser: an application with a uid of its own shares the file
// through its group, whoever opens it first, whatever the umask.
func TestApplicationOfAnotherUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if out, err := exec.Command("/usr/bin/python3", "-c", "import sqlite3").CombinedOutput(); err != nil {
		absent(t, "/usr/bin/python3 with its sqlite3 module is needed: "+string(out))
	}
	w.daemon.Argv = w.asUser(service, sharing)
	w.serviceFiles(0o770|os.ModeSetgid, sharing, fmt.Sprintf(", application_group: \"%d\"", sharing))
	if out, errs, code := w.commandAs(w.daemon.Argv, "db", "init"); code != 0 {
		t.Fatalf("init: %d %s%s", code, out, errs)
	}
	app := append(w.asUser(visitor, sharing)[:4:4], "sh", "-c", `umask 077; exec /usr/bin/python3 -c "$1" "$2" "$3"`, "app", `
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=10)
db.execute("INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments) VALUES ('a', 'b', 'idem', ?, '{}')", (sys.argv[2],))
db.commit()
`, filepath.Join(w.path("d"), "outbox.db"))
	for i, key := range []string{"application first", "beside the daemon"} {
		argv := append(app[:len(app):len(app)], key)
		if out, err := exec.CommandContext(w.ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("the application, %s: %v %s", key, err, out)
		}
		var r *chaos.Running
		if i == 0 {
			r = w.up()
			t.Cleanup(r.Kill)
		}
		w.until(key, func() bool { return len(w.seen(chaos.Effect)) == i+1 })
	}
	if out, _, code := w.commandAs(w.daemon.Argv, "db", "doctor", "-o", "table"); code != 0 {
		t.Errorf("the doctor finds\n%s", out)
	}
}
