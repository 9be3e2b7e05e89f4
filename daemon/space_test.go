package daemon_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/ledger"
)

// fullDisk is a directory on a disk that is full until it is freed.
func fullDisk(t *testing.T) (dir string, free func() error) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("NOT TESTED: a start on a full disk: cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 4<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	return dir, func() error { return os.Remove(filler) }
}

// told waits until the service manager has been told a line.
func told(t *testing.T, manager *net.UnixConn, line string) {
	t.Helper()
	var all []string
	eventually(t, line, func() bool {
		b := make([]byte, 4096)
		n, err := manager.Read(b)
		must(t, err)
		all = append(all, strings.Split(string(b[:n]), "\n")...)
		return strings.Contains(strings.Join(all, "\n")+"\n", line+"\n")
	})
}

const waiting = "the disk is full: waiting for space"

func TestAStartOnAFullDiskWaitsForSpace(t *testing.T) {
	dir, free := fullDisk(t)
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { _ = manager.Close() })
	t.Setenv("NOTIFY_SOCKET", socket)
	w := run(t, settings(dir), daemon.Options{})
	w.says(waiting, 1)
	told(t, manager, "STATUS=waiting: the disk is full")
	told(t, manager, "EXTEND_TIMEOUT_USEC=60000000")
	told(t, manager, "EXTEND_TIMEOUT_USEC=60000000") // it has tried again
	if n := w.logs.FilterMessage(waiting).Len(); n != 1 {
		t.Errorf("logged %d times that it waits, want once", n)
	}
	_, closeAll, err := daemon.Local(t.Context(), settings(dir), daemon.Options{Create: true}, zap.NewNop())
	if ledger.Code(err) != "DISK_FULL" {
		t.Errorf("a command at the same time: got %v, want DISK_FULL", err)
	}
	if err == nil {
		must(t, closeAll())
	}
	must(t, free())
	w.ready()
	told(t, manager, "READY=1")
	must(t, w.end())
}

func TestAStartThatWaitsForSpaceEndsWhenItIsStopped(t *testing.T) {
	dir, _ := fullDisk(t)
	w := run(t, settings(dir), daemon.Options{})
	w.says(waiting, 1)
	must(t, w.end())
}
