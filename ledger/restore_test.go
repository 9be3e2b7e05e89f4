package ledger_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

// backedUp is the path of a closed database with two rows, and of a backup of it
// that holds the first one only.
func backedUp(t *testing.T) (path, backup string) {
	t.Helper()
	l := live(t)
	if err := refuse(l, "one"); err != nil {
		t.Fatal(err)
	}
	backup = filepath.Join(t.TempDir(), "backup")
	if _, err := l.Backup(t.Context(), backup, ledger.CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := refuse(l, "two"); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Path(), backup
}

// moment is when the first restore of a test takes place.
const moment = 77

func restore(t *testing.T, path, from string) (ledger.Restored, error) {
	t.Helper()
	return ledger.Restore(t.Context(), path, from, ledger.CopyOptions{}, time.UnixMilli(moment))
}

func TestRestorePutsTheCopyInItsPlaceAndKeepsTheOldFile(t *testing.T) {
	path, backup := backedUp(t)
	if err := os.Chmod(path, 0o664); err != nil {
		t.Fatal(err)
	}
	r, err := restore(t, path, backup)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	alone(t, filepath.Dir(path), "outbox.db", r.Kept)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o660 {
		t.Errorf("mode %v (%v), want that of the old file without what others had", st.Mode(), err)
	}
	l := openedAt(t, path, ledger.Options{})
	if n := refusals(t, l); n != 1 {
		t.Errorf("the restored file has %d rows, want 1", n)
	}
	var generation, restored int64
	err = l.Read(t.Context(), func(v *ledger.View) error {
		return v.One(`SELECT generation, restored_at FROM outbox_meta`).Scan(&generation, &restored)
	})
	if err != nil || generation != 2 || restored != moment {
		t.Errorf("generation %d, restored at %d (%v), want 2 and %d", generation, restored, err, moment)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	// The old file is whole, and can be put back the same way.
	kept := filepath.Join(filepath.Dir(path), r.Kept)
	if _, err := ledger.Restore(t.Context(), path, kept, ledger.CopyOptions{}, time.UnixMilli(moment+1)); err != nil {
		t.Errorf("put the old file back: %v", err)
	}
	if n := refusals(t, openedAt(t, path, ledger.Options{})); n != 2 {
		t.Errorf("the old file has %d rows, want 2", n)
	}
}

func TestRestoreWhereThereIsNothing(t *testing.T) {
	_, backup := backedUp(t)
	path := filepath.Join(t.TempDir(), "outbox.db")
	if r, err := restore(t, path, backup); err != nil || r.Kept != "" {
		t.Fatalf("restore: %+v, %v", r, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v), want 0600", st.Mode(), err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+"-wal", []byte("commits"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := restore(t, path, backup); !errors.Is(err, ledger.ErrLeftover) {
		t.Errorf("restore beside a log without its file: %v, want %v", err, ledger.ErrLeftover)
	}
}

// holdOpen has the file open and reads nothing, as an idle application does.
func holdOpen(path string) error {
	db, err := plain(path)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := db.Ping(); err != nil {
		return err
	}
	if _, err := db.Exec(`SELECT count(*) FROM outbox_meta`); err != nil {
		return err
	}
	fmt.Println("held")
	waitInput()
	return nil
}

func TestRestoreNeverGoesOverAFileInUse(t *testing.T) {
	path, backup := backedUp(t)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, "idle", path)
	p.wants("held")
	_, err = restore(t, path, backup)
	if !errors.Is(err, ledger.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("(process %d)", p.cmd.Process.Pid)) {
		t.Errorf("restore beside an application: %v, want %v naming the process", err, ledger.ErrInUse)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file in use was changed (%v)", err)
	}
	p.goOn()
	p.wants("")
	if _, err := restore(t, path, backup); err != nil {
		t.Errorf("restore once nobody has it open: %v", err)
	}
}

func TestRestoreOverADamagedFile(t *testing.T) {
	path, backup := backedUp(t)
	for suffix, text := range map[string]string{"": strings.Repeat("damage", 4096), "-wal": "a log", "-shm": "an index"} {
		if err := os.WriteFile(path+suffix, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := restore(t, path, backup)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	alone(t, filepath.Dir(path), "outbox.db", r.Kept, r.Kept+"-shm", r.Kept+"-wal")
	if n := refusals(t, openedAt(t, path, ledger.Options{})); n != 1 {
		t.Errorf("the restored file has %d rows, want 1", n)
	}
}

func TestRestoreRefusesWhatIsNoBackup(t *testing.T) {
	path, backup := backedUp(t)
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	whole, err := os.ReadFile(backup)
	if err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(dir, "torn")
	for i := len(whole) / 2; i < len(whole); i++ {
		whole[i] = 0xa5
	}
	if err := errors.Join(os.WriteFile(text, []byte("not a database at all, but long enough"), 0o600), os.WriteFile(torn, whole, 0o600)); err != nil {
		t.Fatal(err)
	}
	app := application(t, "DELETE")
	for from, want := range map[string]error{
		text: ledger.ErrNotDatabase, torn: ledger.ErrNotDatabase, app: ledger.ErrNoSchema,
		filepath.Join(dir, "none"): ledger.ErrNotFound, path: ledger.ErrTarget,
	} {
		if _, err := restore(t, path, from); !errors.Is(err, want) {
			t.Errorf("restore from %s: %v, want %v", filepath.Base(from), err, want)
		}
	}
	alone(t, filepath.Dir(path), "outbox.db")
	if n := refusals(t, openedAt(t, path, ledger.Options{})); n != 2 {
		t.Errorf("the file has %d rows after refused restores, want 2", n)
	}
}

// A backup of an older version is brought up to date on its way in.
func TestRestoreOfAnOlderVersion(t *testing.T) {
	path, _ := backedUp(t)
	if _, err := restore(t, path, olderFile(t, 3)); err != nil {
		t.Fatalf("restore: %v", err)
	}
	l := openedAt(t, path, ledger.Options{})
	if n := refusals(t, l); n != 3 {
		t.Errorf("the restored file has %d rows, want 3", n)
	}
}
