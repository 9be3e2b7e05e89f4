package lease_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/lease"
	"github.com/outboxd/outboxd/ledger"
)

// holdEnv makes this test binary a process that holds the lock of the file that
// it names until its standard input ends.
const holdEnv = "LEASE_TEST_HOLD"

func TestMain(m *testing.M) {
	if path := os.Getenv(holdEnv); path != "" {
		os.Exit(hold(path))
	}
	if os.Getenv(lingerEnv) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func hold(path string) int {
	if _, err := lease.Acquire(context.Background(), path, lease.Exclusive, me("run")); err != nil {
		fmt.Println(err)
		return 1
	}
	if os.Getenv(orphanEnv) != "" {
		if err := linger(path + ".lock"); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func me(command string) lease.Holder {
	return lease.Holder{PID: os.Getpid(), Command: command, Since: time.Now()}
}

// holder is another process that has the lock.
func holder(t *testing.T, path string) (*exec.Cmd, io.Closer) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), holdEnv+"="+path)
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("holder said %q, %v", line, err)
	}
	return c, in
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// path of a database that need not exist for its lock.
func database(t *testing.T) string { return filepath.Join(t.TempDir(), "outbox.db") }

// soon is a context for what must not take long, and for what must be waited for.
func soon(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func acquire(t *testing.T, path string, mode lease.Mode) *lease.Lock {
	t.Helper()
	l, err := lease.Acquire(soon(t, 5*time.Second), path, mode, me("run"))
	must(t, err)
	return l
}

// refused demands that the lock is held, and says by whom.
func refused(t *testing.T, ctx context.Context, path string, mode lease.Mode) lease.Holder {
	t.Helper()
	l, err := lease.Acquire(ctx, path, mode, me("run"))
	var held *lease.HeldError
	if !errors.As(err, &held) {
		if err == nil {
			_ = l.Unlock()
		}
		t.Fatalf("acquire answered %v, want a HeldError", err)
	}
	return held.Holder
}

func TestASecondDaemonIsRefusedAtOnceAndToldWhoHoldsTheLock(t *testing.T) {
	path := database(t)
	other, in := holder(t, path)
	for _, mode := range []lease.Mode{lease.Exclusive, lease.Shared} {
		began := time.Now()
		who := refused(t, soon(t, 30*time.Second), path, mode)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("mode %d: refused after %v, want at once", mode, took)
		}
		if who.PID != other.Process.Pid || who.Command != "run" || time.Since(who.Since).Abs() > time.Minute {
			t.Errorf("mode %d: told of %+v, want process %d", mode, who, other.Process.Pid)
		}
		text := (&lease.HeldError{Holder: who}).Error()
		if !strings.Contains(text, fmt.Sprint("process ", other.Process.Pid)) {
			t.Errorf("message does not name the holder: %s", text)
		}
	}
	must(t, in.Close())
	must(t, other.Wait())
	must(t, acquire(t, path, lease.Exclusive).Unlock())
}

func TestTheLockOfAKilledProcessIsFree(t *testing.T) {
	path := database(t)
	other, _ := holder(t, path)
	must(t, other.Process.Kill())
	if err := other.Wait(); err == nil {
		t.Fatal("the holder was not killed")
	}
	must(t, acquire(t, path, lease.Exclusive).Unlock())
}

func TestOneShotCommandsShareTheLockAndADaemonWaitsForThem(t *testing.T) {
	path := database(t)
	must(t, acquire(t, path, lease.Exclusive).Unlock()) // leaves its name in the file
	a, b := acquire(t, path, lease.Shared), acquire(t, path, lease.Shared)
	if who := refused(t, soon(t, 100*time.Millisecond), path, lease.Exclusive); who != (lease.Holder{}) {
		t.Errorf("told of %+v, who holds nothing any more", who)
	}
	if text := (&lease.HeldError{}).Error(); strings.Contains(text, "process 0") {
		t.Errorf("message names nobody as the holder: %s", text)
	}

	daemon := make(chan error, 1)
	go func() {
		l, err := lease.Acquire(soon(t, 30*time.Second), path, lease.Exclusive, me("run"))
		if err == nil {
			err = l.Unlock()
		}
		daemon <- err
	}()
	must(t, a.Unlock())
	must(t, b.Unlock())
	must(t, <-daemon)
}

func TestALockFileThatIsReplacedIsNoticed(t *testing.T) {
	for name, replace := range map[string]func(path string) error{
		"removed":  os.Remove,
		"moved":    func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := database(t)
			l := acquire(t, path, lease.Exclusive)
			defer func() { must(t, l.Unlock()) }()
			must(t, l.Check())
			must(t, replace(path+".lock"))
			if err := l.Check(); !errors.Is(err, lease.ErrLockReplaced) {
				t.Errorf("check answered %v, want ErrLockReplaced", err)
			}
		})
	}
}

func TestTheLockLiesBesideTheRealFile(t *testing.T) {
	path := database(t)
	must(t, os.WriteFile(path, nil, 0o600))
	link := filepath.Join(t.TempDir(), "link.db")
	must(t, os.Symlink(path, link))
	l := acquire(t, path, lease.Exclusive)
	defer func() { must(t, l.Unlock()) }()
	refused(t, soon(t, 5*time.Second), link, lease.Exclusive)
	info, err := os.Stat(path + ".lock")
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("lock file has mode %v, want 0600", info.Mode())
	}
	if b, err := os.ReadFile(path); err != nil || len(b) != 0 {
		t.Errorf("the database was touched: %d bytes, %v", len(b), err)
	}
	if _, err := lease.Acquire(t.Context(), filepath.Join(path, "none", "x.db"), lease.Shared, me("submit")); err == nil {
		t.Error("a lock in no directory was taken")
	}
}

func TestTheLockFileKeepsHowTheLastDaemonEnded(t *testing.T) {
	path := database(t)
	for _, failed := range []bool{true, false} {
		l := acquire(t, path, lease.Exclusive)
		if l.Failed() == failed {
			t.Errorf("failed is %v before it was set", failed)
		}
		must(t, l.SetFailed(failed))
		must(t, l.SetFailed(failed))
		must(t, l.Unlock())
		l = acquire(t, path, lease.Shared)
		if l.Failed() != failed {
			t.Errorf("failed is %v for the next one, want %v", l.Failed(), failed)
		}
		must(t, l.Unlock())
	}
	must(t, os.WriteFile(path+".lock", []byte("garbage"), 0o600))
	l := acquire(t, path, lease.Exclusive)
	defer func() { must(t, l.Unlock()) }()
	if l.Failed() {
		t.Error("garbage says that the last daemon failed")
	}
}

func TestALockFileThatADiskHasNoSpaceForSaysSo(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("NOT TESTED: a lock file on a full disk: cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	path := filepath.Join(dir, "outbox.db")
	_, err := lease.Acquire(t.Context(), path, lease.Exclusive, me("run"))
	if ledger.Code(err) != "DISK_FULL" {
		t.Errorf("acquire answered %v, want DISK_FULL", err)
	}
	must(t, os.Remove(filepath.Join(dir, "filler")))
	must(t, acquire(t, path, lease.Exclusive).Unlock()) // the first one holds nothing
}
