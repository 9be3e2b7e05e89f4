package chaos_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/chaos"
)

// TestFileTakenAway: the file is moved, removed or replaced under the daemon. It
// notices within seconds, stops, and nothing is acknowledged into the void.
func TestFileTakenAway(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		take func(w *world) error
		idle bool // nobody submits, a handler runs
	}{
		{"moved", func(w *world) error { return os.Rename(w.path("outbox.db"), w.path("outbox.db.old")) }, false},
		{"moved in silence", func(w *world) error { return os.Rename(w.path("outbox.db"), w.path("outbox.db.old")) }, true},
		{"removed", func(w *world) error {
			return errors.Join(os.Remove(w.path("outbox.db")), os.Remove(w.path("outbox.db-wal")), os.Remove(w.path("outbox.db-shm")))
		}, false},
		{"replaced", func(w *world) error {
			must(w.t, os.WriteFile(w.path("new.db"), nil, 0o600))
			return os.Rename(w.path("new.db"), w.path("outbox.db"))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.configure("worker: {poll_interval: 1s, drain_timeout: 1s}",
				w.http("idem", "idempotent", chaos.Now, ""), w.http("long", "opaque", "slow-60s", "timeout: 90s"))
			r := w.up()
			w.wantStatus("before", w.settled(w.submit("idem", "before").StatusRef), "succeeded", "")
			effects := 1
			if c.idle {
				w.submit("long", "key")
				effects++
				w.until("it runs", func() bool { return len(w.seen(chaos.Effect)) == effects })
			}
			began := time.Now()
			must(t, c.take(w))
			for i := 0; r.Alive() && !c.idle; i++ {
				if a, err := w.client.Submit(w.ctx, body("idem", fmt.Sprint("after-", i), "{}"), 0); err == nil {
					t.Errorf("%s was acknowledged: %s", a.IdempotencyKey, a.Code)
				}
			}
			equal(t, "exit", w.exit(r.Process), 2)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
			if said := tail(w.daemon.Log, 1); !strings.Contains(said, "DATABASE_REPLACED") || strings.Contains(said, w.dir) {
				t.Errorf("it says %q, want DATABASE_REPLACED and no path", said)
			}
			equal(t, "effects", len(w.seen(chaos.Effect)), effects)
		})
	}
}

// TestFullDisk: submits are refused, nothing is acknowledged, the daemon stays up
// and recovers by itself.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	small := w.path("small")
	must(t, os.Mkdir(small, 0o700))
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=8m"); err != nil {
		absent(t, "mounting a small tmpfs: "+err.Error())
	}
	t.Cleanup(func() { must(t, syscall.Unmount(small, syscall.MNT_DETACH)) })
	must(t, os.Symlink(filepath.Join(small, "outbox.db"), w.path("outbox.db")))
	must(t, os.WriteFile(filepath.Join(small, "outbox.db"), nil, 0o600))
	w.configure("retry: {initial: 10ms, max: 100ms}", w.http("idem", "idempotent", chaos.Now, ""))
	r := w.up()
	before := w.submit("idem", "before").StatusRef
	w.settled(before)
	fill(t, filepath.Join(small, "ballast"), 600_000)

	// A COMMIT that the disk did not take is in doubt, and answered as such.
	acked, refusals, full, unready := map[string]string{}, 0, "", false
	large := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", 30_000))
	for i := 0; refusals < 5; i++ {
		key := fmt.Sprint("full-", i)
		a, err := w.client.Submit(w.ctx, body("idem", key, large), 0)
		var p *api.Problem
		switch {
		case err == nil:
			acked[key] = a.StatusRef
		case errors.As(err, &p) && strings.Contains(p.Detail, "not known yet"):
			acked[key] = ""
		case errors.As(err, &p) && p.Status == 507:
			refusals, full = refusals+1, p.Code
			unready = unready || !r.Ready(w.ctx) // until something smaller fits again
		case errors.As(err, &p):
			t.Fatalf("submit on a full disk: %v", err)
		default:
			acked[key] = ""
		}
	}
	equal(t, "code", full, "DISK_FULL")
	equal(t, "not ready on a full disk", unready, true)
	equal(t, "alive", r.Alive(), true)
	must(t, os.Remove(filepath.Join(small, "ballast")))
	w.until("it recovers", func() bool { return r.Ready(w.ctx) })
	for key, ref := range acked {
		again, err := w.client.Submit(w.ctx, body("idem", key, large), patience)
		must(t, err)
		w.wantStatus(key, again, "succeeded", "")
		if ref != "" {
			equal(t, "reference", again.StatusRef, ref)
		}
	}
	t.Logf("%d acknowledged, or in doubt, before the disk was full: all delivered", len(acked))
	equal(t, "effects", len(w.seen(chaos.Effect)), len(acked)+1)
	w.wantStatus("after", w.settled(w.submit("idem", "after").StatusRef), "succeeded", "")
	w.down(r)
}

// fill leaves so many bytes.
func fill(t *testing.T, path string, left int64) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	must(t, err)
	must(t, f.Truncate(size-left))
}
