package chaos_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/outboxd/outboxd/chaos"
)

// TestAFailingCheckpointIsSaid: SQLite is silent about a checkpoint that fails. One
// that cannot write is seen in the metric while work goes on; one that cannot sync
// ends the daemon, because a second sync would succeed and prove nothing. Nothing
// that was acknowledged is lost either way.
func TestAFailingCheckpointIsSaid(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("strace"); err != nil {
		absent(t, "strace is needed")
	}
	for _, call := range []string{"pwrite64", "fsync"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			failingCheckpoint(t, call)
		})
	}
}

func failingCheckpoint(t *testing.T, call string) {
	w := newWorld(t)
	w.configure("", w.http("idem", "idempotent", chaos.Now, ""))
	w.down(w.up())
	faulty := w.daemon
	faulty.Argv = []string{"strace", "-f", "-o", w.path("trace"), "-e", "trace=" + call, "-P", w.path("outbox.db"),
		"-e", "inject=" + call + ":error=EIO", binary}
	r := w.upWith(faulty)
	refs := []string{w.submit("idem", "one").StatusRef}
	if call == "fsync" {
		select {
		case <-r.Ended():
		case <-time.After(patience):
			t.Fatalf("the database could not be synced and the daemon goes on:\n%s", tail(w.path("trace"), 3))
		}
	} else {
		w.until("the metric says that a checkpoint failed", func() bool { return w.metric(r, "outboxd_checkpoint_failing") == 1 })
		refs = append(refs, w.submit("idem", "two").StatusRef)
		w.wantStatus("while the log grows", w.settled(refs[1]), "succeeded", "")
		r.Kill()
	}
	w.await(r)
	figure("failing checkpoints", call, 1)
	r = w.up()
	for _, ref := range refs {
		w.wantStatus("afterwards", w.settled(ref), "succeeded", "")
		equal(t, "effects", w.of(chaos.Effect, ref), 1)
	}
	equal(t, "failing checkpoints of the next daemon", w.metric(r, "outboxd_checkpoint_failing"), 0.0)
	w.down(r)
}
