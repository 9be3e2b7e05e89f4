package lease_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/outboxd/outboxd/lease"
	"github.com/outboxd/outboxd/ledger"
)

// A lock file that another user made would keep the owner of the database out.
func TestTheLockFileIsTheOwnersAndTheGroups(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: files of another user: only root makes them")
	}
	const nobody, group = 65534, 4711
	defer syscall.Umask(syscall.Umask(0o077))
	dir := filepath.Join(t.TempDir(), "d")
	path := filepath.Join(dir, "outbox.db")
	err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(path, nil, 0o600), os.Chown(path, nobody, group))
	if err != nil {
		t.Fatal(err)
	}
	me := lease.Holder{PID: os.Getpid(), Command: "test", Since: time.Now()}
	for _, mode := range []lease.Mode{lease.Shared, lease.Exclusive} {
		_, err := lease.Acquire(context.Background(), path, mode, me)
		if wrong := (*ledger.WrongUserError)(nil); !errors.As(err, &wrong) {
			t.Errorf("lock nobody's file: %v, want that it says whom to run as", err)
		}
		if _, err := os.Stat(path + ".lock"); !os.IsNotExist(err) {
			t.Errorf("the lock file was made all the same (%v)", err)
		}
	}
	if err := errors.Join(os.Chmod(path, 0o660), os.Chown(dir, nobody, group), os.Chmod(dir, 0o770|os.ModeSetgid)); err != nil {
		t.Fatal(err)
	}
	l, err := lease.Acquire(context.Background(), path, lease.Shared, me)
	if err != nil {
		t.Fatalf("lock a file that is shared: %v", err)
	}
	defer func() { _ = l.Unlock() }()
	st, err := os.Stat(path + ".lock")
	if err != nil || st.Mode() != 0o660 || st.Sys().(*syscall.Stat_t).Gid != group {
		t.Errorf("the lock file has mode %v (%v), want 0660 of the group", st.Mode(), err)
	}
}
