package chaos_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxd/outboxd/chaos"
	"github.com/outboxd/outboxd/chaos/point"
)

// markedVersion is the first version of the schema in which a database can say
// that it may be broken.
const markedVersion = 4

// upgradeKill: the daemon dies at each step of an upgrade in turn. What was in the
// old file is done once, and clients that wait meanwhile are answered in the end.
func upgradeKill(t *testing.T, plan string) {
	w := newWorld(t)
	replay(t, plan)
	w.configureMix("")
	w.olderVersion(markedVersion)
	f := w.feed(3, "upgrade")
	steps := 1
	if strings.HasPrefix(plan, "migrate.after") {
		steps = 3 // each leaves one step less; the last is the next one's
	}
	for range steps {
		w.dies(plan)
		w.auditCrash()
	}
	r := w.up()
	intents := f.end()
	var old string
	w.until("the row of the old file is accepted", func() bool {
		db := w.open()
		defer db.Close()
		return db.QueryRow(`SELECT status_ref FROM outbox_operation WHERE idempotency_key = 'old'`).Scan(&old) == nil
	})
	intents = append(intents, intent{tool: "idem", key: "old", arguments: "{}", ref: old})
	w.drained()
	w.verify(intents, nil)
	w.down(r)
	figure("named kills", "operations", len(intents))
}

// restoreKill: a restore dies right before it puts the file in its place, or right
// after. The path names the old file or the copy, whole, and never neither.
func restoreKill(t *testing.T, plan string) {
	w := newWorld(t)
	replay(t, plan)
	w.configureMix("")
	w.fromTemplate()
	refs := make([]string, 2)
	for i := range refs {
		r := w.up()
		refs[i] = w.submit("idem", fmt.Sprint("key-", i)).StatusRef
		w.wantStatus("before the restore", w.settled(refs[i]), "succeeded", "")
		w.down(r)
		if i == 0 {
			w.mustCommand("db", "backup", w.path("backup.db"))
		}
	}
	w.restoreDies(plan)
	w.audit()
	has := func(ref string) int {
		return w.count(`SELECT count(*) FROM outbox_operation WHERE status_ref = ?`, ref)
	}
	equal(t, "what is in both files", has(refs[0]), 1)
	replaced := strings.HasPrefix(plan, "restore.after")
	equal(t, "what is in the old file only is gone", has(refs[1]) == 0, replaced)
	w.mustCommand("db", "restore", w.path("backup.db"))
	equal(t, "what is in the old file only", has(refs[1]), 0)
	r := w.up()
	w.mustCommand("db", "release")
	w.wantStatus("after the release", w.settled(w.submit("idem", "key-2").StatusRef), "succeeded", "")
	w.down(r)
}

// restoreDies runs a restore that is to die at a point.
func (w *world) restoreDies(plan string) {
	w.t.Helper()
	parsed, err := point.Parse(plan)
	must(w.t, err)
	var said strings.Builder
	cmd := exec.CommandContext(w.ctx, binary, "--config", w.daemon.Config, "db", "restore", "--chaos-arm", plan, w.path("backup.db"))
	cmd.Stderr, cmd.Env = &said, chaos.Environment(os.Environ())
	_ = cmd.Run() // how it ended is looked at
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != syscall.SIGKILL || !strings.HasSuffix(said.String(), point.Said(parsed[0])) {
		w.t.Fatalf("%s: it ended otherwise: %v\n%s", plan, cmd.ProcessState, said.String())
	}
	figure("named kills", "kills", 1)
	figure("named kills", "at "+parsed[0].Point.String(), 1)
}
