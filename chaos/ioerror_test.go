package chaos_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/chaos"
)

// injection is an error that system calls of the whole daemon are made to return.
type injection struct {
	call, errno string
	when        string // as strace says it: the n-th call of a thread, and every so many after it
}

// TestIOErrors: calls of the real daemon fail: a sync, a write, a truncation, once
// or again and again. It ends, or goes on without what it could not write; what it
// acknowledged is there, and the next one finishes the work.
func TestIOErrors(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		absent(t, "strace is needed")
	}
	list := []injection{{"fsync", "EIO", "3"}, {"fsync", "EIO", "9"}, {"pwrite64", "EIO", "20"}, {"pwrite64", "ENOSPC", "12+9"}, {"fsync", "ENOSPC", "5+6"}}
	if full {
		list = nil
		for n := 1; n <= 40; n++ {
			for _, call := range []string{"fsync", "pwrite64"} {
				list = append(list, injection{call, "EIO", fmt.Sprint(n)}, injection{call, "ENOSPC", fmt.Sprintf("%d+%d", n, 3+n%7)})
			}
		}
	}
	t.Run("each", func(t *testing.T) {
		for _, in := range list {
			t.Run(fmt.Sprintf("%s %s %s", in.call, in.errno, in.when), func(t *testing.T) {
				t.Parallel()
				ioErrors(t, in)
			})
		}
	})
	if n := figured("input/output errors", "faults"); n < len(list)/2 {
		t.Errorf("%d faults in %d runs: nothing was shown", n, len(list))
	}
}

func ioErrors(t *testing.T, in injection) {
	w := newWorld(t)
	w.configureMix("")
	w.fromTemplate()
	trace := w.path("trace")
	faulty := w.daemon
	faulty.Argv = []string{"strace", "-f", "-o", trace, "-e", "trace=" + in.call, "-P", w.path("outbox.db"), "-P", w.path("outbox.db-wal"),
		"-e", "inject=" + in.call + ":error=" + in.errno + ":when=" + in.when, binary}
	r, err := faulty.Start()
	must(t, err)
	t.Cleanup(r.Kill)
	f := w.feed(4, "order")
	select {
	case <-r.Ended():
	case <-time.After(2 * time.Second):
		r.Kill()
	}
	w.await(r)
	before := w.auditCrash()
	r = w.up()
	intents := f.end()
	w.drained()
	w.verify(intents, before)
	w.down(r)
	text, err := os.ReadFile(trace)
	must(t, err)
	figure("input/output errors", "faults", strings.Count(string(text), "(INJECTED)"))
	figure("input/output errors", "runs", 1)
}

// await waits until nobody holds the database: strace may end before the daemon
// that it traced.
func (w *world) await(r *chaos.Running) {
	w.t.Helper()
	w.exit(r.Process)
	w.until("the daemon lets go of the database", func() bool {
		lock, err := os.OpenFile(w.path("outbox.db.lock"), os.O_RDWR, 0)
		if err != nil {
			return os.IsNotExist(err)
		}
		defer lock.Close()
		return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
	})
}

// TestFullDiskCycles: the disk fills up under a daemon at work, again and again. It stays
// up, refuses what it cannot keep with a word of its own, says so in its health,
// claims nothing new, and goes on by itself once there is space.
func TestFullDiskCycles(t *testing.T) {
	cycles := 2
	if full {
		cycles = 20
	}
	w := newWorld(t)
	disk := w.path("disk")
	must(t, os.Mkdir(disk, 0o700))
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=24m"); err != nil {
		absent(t, "a small file system cannot be mounted: "+err.Error())
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	w.configureMix("")
	w.daemon.Args = []string{"--db", w.path("disk/outbox.db")}
	r := w.up()
	var intents []intent
	for i := range cycles {
		f := w.feed(4, fmt.Sprint("cycle-", i))
		time.Sleep(100 * time.Millisecond)
		filler := w.path("disk/filler")
		if err := os.WriteFile(filler, make([]byte, 32<<20), 0o600); err == nil {
			t.Fatal("the disk did not fill up")
		}
		w.until("it says that the disk is full", func() bool { return !r.Ready(w.ctx) })
		f.stop() // what was submitted is still insisted on
		_, err := w.client.Submit(w.ctx, body("idem", fmt.Sprint("refused-", i), "{}"), 0)
		if err == nil || !strings.Contains(err.Error(), "DISK_FULL") {
			t.Errorf("a submit on a full disk: %v, want DISK_FULL", err)
		}
		sent := len(w.seen(chaos.Asked))
		time.Sleep(300 * time.Millisecond)
		if n := len(w.seen(chaos.Asked)) - sent; n > 40 {
			t.Errorf("on a full disk %d requests left: it goes on claiming", n)
		}
		must(t, os.Remove(filler))
		w.until("it goes on", func() bool { return r.Ready(w.ctx) })
		intents = append(intents, f.end()...)
		figure("full disk", "cycles", 1)
	}
	if !r.Alive() {
		t.Fatal("the daemon ended")
	}
	must(t, os.Symlink(w.path("disk/outbox.db"), w.path("outbox.db")))
	w.drained()
	w.verify(intents, nil)
	r.Signal(syscall.SIGTERM)
	equal(t, "exit", w.exit(r.Process), 0)
}
