package ledger_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxd/outboxd/ledger"
)

// foreignFile is a closed database that belongs to nobody, in a directory of its
// own with mode and group as given.
func foreignFile(t *testing.T, dirMode, mode os.FileMode, gid int) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: files of another user: only root makes them")
	}
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "outbox.db")
	l := openedAt(t, path, ledger.Options{Create: true})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(os.Chown(path, nobody, gid), os.Chmod(path, mode), os.Chown(dir, nobody, gid), os.Chmod(dir, dirMode))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAFileOfAnotherUserIsLeftToThatUser(t *testing.T) {
	const group = 4711
	for name, path := range map[string]string{
		"private":                    foreignFile(t, 0o700, 0o600, nobody),
		"of a group, not its place":  foreignFile(t, 0o770, 0o660, group),
		"group may not make files":   foreignFile(t, 0o750|os.ModeSetgid, 0o660, group),
		"for the group to read only": foreignFile(t, 0o770|os.ModeSetgid, 0o640, group),
	} {
		for _, o := range []ledger.Options{{}, {Create: true}, {ReadOnly: true}} {
			err := openError(t, path, o)
			var wrong *ledger.WrongUserError
			if !errors.As(err, &wrong) || ledger.Code(err) != "WRONG_USER" || !strings.Contains(err.Error(), "run as nobody") {
				t.Errorf("%s, opened with %+v: %v, want that it says whom to run as", name, o, err)
			}
		}
		alone(t, filepath.Dir(path), "outbox.db")
	}
	missing := filepath.Join(filepath.Dir(foreignFile(t, 0o700, 0o600, nobody)), "new.db")
	if err := openError(t, missing, ledger.Options{Create: true}); ledger.Code(err) != "WRONG_USER" {
		t.Errorf("a new file in nobody's directory: %v", err)
	}
}

// What the service and the application of a group leave for each other.
func TestAFileOfAGroupIsSharedWithIt(t *testing.T) {
	const group = 4711
	path := foreignFile(t, 0o770|os.ModeSetgid, 0o660, group)
	defer syscall.Umask(syscall.Umask(0o077))
	l := openedAt(t, path, ledger.Options{})
	if err := refuse(l, "x"); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		mine(t, path+suffix, 0o660, group)
	}
}

func TestAnApplicationGroupIsGivenTheFile(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: groups: only root gives files to any of them")
	}
	const group = 4711
	for _, mask := range []int{0, 0o077} {
		defer syscall.Umask(syscall.Umask(mask))
		dir := t.TempDir()
		if err := errors.Join(os.Chown(dir, -1, group), os.Chmod(dir, 0o770|os.ModeSetgid)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "outbox.db")
		for range 2 { // new, and then as it is
			l := openedAt(t, path, ledger.Options{Create: true, Group: group})
			for _, suffix := range []string{"", "-wal", "-shm"} {
				mine(t, path+suffix, 0o660, group)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func mine(t *testing.T, path string, mode os.FileMode, gid uint32) {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := st.Sys().(*syscall.Stat_t).Gid; got != gid || st.Mode() != mode {
		t.Errorf("%s has mode %v and group %d, want %v and %d", filepath.Base(path), st.Mode(), got, mode, gid)
	}
}
