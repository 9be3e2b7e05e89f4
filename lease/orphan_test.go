package lease_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/lease"
)

// orphanEnv lets a holder start a child that inherits the lock's descriptor, as
// one between fork and exec has it; lingerEnv makes this binary that child.
const (
	orphanEnv = "LEASE_TEST_ORPHAN"
	lingerEnv = "LEASE_TEST_LINGER"
)

func linger(lock string) error {
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return err
	}
	for _, name := range fds {
		var fd int
		if to, err := os.Readlink(name); err != nil || to != lock {
			continue
		}
		if _, err := fmt.Sscan(filepath.Base(name), &fd); err != nil {
			return err
		}
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), holdEnv+"=", lingerEnv+"=1")
		c.Stdin = os.Stdin
		c.ExtraFiles = []*os.File{os.NewFile(uintptr(fd), lock)}
		return c.Start()
	}
	return errors.New("the lock has no descriptor")
}

// orphaned is a lock whose holder was killed and whose child still has it, until
// release.
func orphaned(t *testing.T) (path string, release func() error) {
	t.Helper()
	t.Setenv(orphanEnv, "1")
	path = database(t)
	other, in := holder(t, path)
	must(t, other.Process.Kill())
	_, err := other.Process.Wait() // that of the command would close in
	must(t, err)
	f, err := os.Open(path + ".lock")
	must(t, err)
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Fatalf("the child does not hold the lock: %v", err)
	}
	return path, in.Close
}

func TestALockThatOnlyAChildOfADeadHolderHasIsWaitedFor(t *testing.T) {
	for name, named := range map[string]string{
		"dead":                              "",
		"dead, its number given to another": fmt.Sprintf(`{"pid":%d,"command":"run","begun":"1"}`, os.Getpid()),
		"not named yet":                     `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			path, release := orphaned(t)
			if named != "" {
				must(t, os.WriteFile(path+".lock", []byte(named), 0o600))
			}
			acquired := make(chan error, 1)
			go func() {
				l, err := lease.Acquire(soon(t, 30*time.Second), path, lease.Exclusive, me("run"))
				if err == nil {
					err = l.Unlock()
				}
				acquired <- err
			}()
			select {
			case err := <-acquired:
				t.Fatalf("acquire answered %v while the child had the lock", err)
			case <-time.After(100 * time.Millisecond):
			}
			must(t, release())
			must(t, <-acquired)
		})
	}
}

func TestALockThatNobodyLetsGoOfIsNotWaitedForLong(t *testing.T) {
	path, release := orphaned(t)
	began := time.Now()
	refused(t, soon(t, 30*time.Second), path, lease.Shared)
	if took := time.Since(began); took < time.Second || took > 15*time.Second {
		t.Errorf("refused after %v, want two seconds", took)
	}
	must(t, release())
}
