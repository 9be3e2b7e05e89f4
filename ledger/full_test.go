package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/ledger"
)

// A full disk: nothing acknowledged is missing and nothing refused is there, also
// after a kill; the ledger stays and goes on by itself when there is space.
func TestFullDisk(t *testing.T) {
	t.Run("a limit on the size of files", func(t *testing.T) { fullDisk(t, t.TempDir()) })
	t.Run("a small file system", func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
			t.Skipf("NOT TESTED: a full file system: cannot mount one: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		t.Setenv(filler, filepath.Join(dir, "filler"))
		fullDisk(t, dir)
	})
}

// filler names a file that fills the disk; without it a limit does.
const filler = "OUTBOXD_LEDGER_FILLER"

func fullDisk(t *testing.T, dir string) {
	path := filepath.Join(dir, "outbox.db")
	l := reopen(t, path, ledger.Options{Create: true})
	mustWrite(t, l, func(tx *ledger.Tx) error {
		_, err := tx.Exec(`CREATE TABLE note (k INTEGER PRIMARY KEY, v TEXT)`)
		return err
	})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p := start(t, "fill", path)
	acked, refused := map[int]bool{}, map[int]bool{}
	recovered := false
	for line := p.line(); line != "done"; line = p.line() {
		var what string
		var k int
		if _, err := fmt.Sscan(line, &what, &k); err != nil {
			t.Fatalf("the other process said %q: %v", line, err)
		}
		switch what {
		case "acked":
			acked[k] = true
			recovered = recovered || len(refused) > 0
		case "refused":
			refused[k] = true
		default:
			t.Fatalf("the other process said %q", line)
		}
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	if len(acked) == 0 || len(refused) == 0 || !recovered {
		t.Fatalf("%d acknowledged, %d refused, recovered %v: want some of each", len(acked), len(refused), recovered)
	}
	if err := reopen(t, path, ledger.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	got := keys(t, path)
	for k := range acked {
		if !got[k] {
			t.Errorf("row %d was acknowledged and is missing", k)
		}
	}
	for k := range refused {
		if got[k] {
			t.Errorf("row %d was refused and is there", k)
		}
	}
}

// disk can be made full and empty again.
type disk struct{ fill, free func() error }

func aDisk(path string) disk {
	if name := os.Getenv(filler); name != "" {
		return disk{
			fill: func() error {
				err := os.WriteFile(name, make([]byte, 4<<20), 0o600)
				if errors.Is(err, syscall.ENOSPC) {
					return nil
				}
				return err
			},
			free: func() error { return os.Remove(name) },
		}
	}
	limit := func(bytes uint64) error {
		var now unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &now); err != nil {
			return err
		}
		return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: min(bytes, now.Max), Max: now.Max})
	}
	return disk{
		fill: func() error {
			st, err := os.Stat(path + "-wal")
			if err != nil {
				return err
			}
			return limit(uint64(st.Size()) + 100_000)
		},
		free: func() error { return limit(unix.RLIM_INFINITY) },
	}
}

// fillDisk writes from several callers until the disk is full, then frees it,
// until everybody has been acknowledged something once more. It says what each
// was told.
func fillDisk(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	l, err := ledger.Open(context.Background(), path, ledger.Options{})
	if err != nil {
		return err
	}
	d := aDisk(path)
	for k := range 20 { // the log must exist and have some length
		if err := l.Write(context.Background(), insert(k+1, payload(8000))); err != nil {
			return err
		}
		fmt.Println("acked", k+1)
	}
	if err := d.fill(); err != nil {
		return err
	}
	var refused atomic.Int64
	var freed atomic.Bool
	var say sync.Mutex
	errs := make(chan error, 5)
	for w := range 4 {
		go func() { errs <- fillFrom(l, w, &refused, &freed, &say) }()
	}
	go func() {
		errs <- freeDisk(l, d, &refused)
		freed.Store(true)
	}()
	for range 5 {
		if err := <-errs; err != nil {
			return err
		}
	}
	if h := l.Health(); h.Full || h.Err != nil {
		return fmt.Errorf("health after all: %+v", h)
	}
	fmt.Println("done")
	waitInput() // to be killed
	return nil
}

func fillFrom(l *ledger.Ledger, w int, refused *atomic.Int64, freed *atomic.Bool, say *sync.Mutex) error {
	for n := 0; ; n++ {
		k := 1000 + n*4 + w
		last := freed.Load()
		err := l.Write(context.Background(), insert(k, payload(8000)))
		say.Lock()
		switch {
		case err == nil:
			fmt.Println("acked", k)
		case errors.Is(err, ledger.ErrDiskFull) && ledger.Code(err) == "DISK_FULL":
			fmt.Println("refused", k)
		default:
			return fmt.Errorf("write: %w", err)
		}
		say.Unlock()
		if err != nil {
			refused.Add(1)
			<-time.After(5 * time.Millisecond)
		} else if last {
			return nil
		}
	}
}

// freeDisk makes space once somebody has been refused. Those whose batch is in
// doubt wait for it.
func freeDisk(l *ledger.Ledger, d disk, refused *atomic.Int64) error {
	limit := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for refused.Load() == 0 || !l.Health().Full {
		// one more, who does not wait for the disk
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := l.Write(ctx, func(tx *ledger.Tx) error { return nil })
		cancel()
		if errors.Is(err, ledger.ErrDiskFull) {
			refused.Add(1)
		}
		select {
		case <-tick.C:
		case <-limit:
			return errors.New("the disk did not become full")
		}
	}
	return d.free()
}

// Health recovers also when nobody has anything to write.
func TestHealthRecoversFromAFullDisk(t *testing.T) {
	l := fresh(t, ledger.Options{})
	err := l.Write(t.Context(), func(tx *ledger.Tx) error {
		var pages int
		if err := tx.One(`PRAGMA page_count`).Scan(&pages); err != nil {
			return err
		}
		if err := tx.One(fmt.Sprintf(`PRAGMA max_page_count = %d`, pages)).Scan(new(int)); err != nil {
			return err
		}
		_, err := tx.Exec(`INSERT INTO note VALUES (1, zeroblob(100000))`)
		return err
	})
	if !errors.Is(err, ledger.ErrDiskFull) || strings.Contains(err.Error(), "SELECT") {
		t.Fatalf("got %v, want %v", err, ledger.ErrDiskFull)
	}
	if !l.Health().Full {
		t.Fatal("health does not say full")
	}
	mustWrite(t, l, func(*ledger.Tx) error { return nil })
	if l.Health().Full {
		t.Error("health still says full after a commit")
	}
}
