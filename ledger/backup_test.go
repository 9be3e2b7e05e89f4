package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

// openedAt opens a file that exists.
func openedAt(t *testing.T, path string, o ledger.Options) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), path, o)
	if err != nil {
		t.Fatalf("open %s: %v", filepath.Base(path), err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// live is a ledger without a table of the application.
func live(t *testing.T) *ledger.Ledger {
	t.Helper()
	return openedAt(t, filepath.Join(t.TempDir(), "outbox.db"), ledger.Options{Create: true})
}

func refuse(l *ledger.Ledger, key string) error {
	return l.Write(context.Background(), func(tx *ledger.Tx) error {
		_, err := tx.Exec(`INSERT INTO outbox_refused (tenant_id, subject_id, tool_name, idempotency_key, arguments, code, message, refused_at)
			VALUES ('t', 's', 'tool', ?, '', 'C', 'm', 1)`, key)
		return err
	})
}

func refusals(t *testing.T, l *ledger.Ledger) (n int) {
	t.Helper()
	err := l.Read(t.Context(), func(v *ledger.View) error { return v.One(`SELECT count(*) FROM outbox_refused`).Scan(&n) })
	if err != nil {
		t.Fatalf("count: %v", err)
	}
	return n
}

// alone fails the test unless the directory holds just these names.
func alone(t *testing.T, dir string, names ...string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("the directory holds %q, want %q", got, names)
	}
}

// What was acknowledged before a backup began is in it, however many write
// meanwhile; the copy opens by itself and writes.
func TestBackupHoldsWhatWasCommittedBeforeItBegan(t *testing.T) {
	l := live(t)
	dir := t.TempDir()
	var acked atomic.Int64
	stop, done := make(chan struct{}), make(chan error, 4)
	for w := range cap(done) {
		go func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				if err := refuse(l, fmt.Sprintf("%d-%d", w, i)); err != nil {
					done <- err
					return
				}
				acked.Add(1)
			}
		}()
	}
	for i := range 5 {
		for end := time.Now().Add(10 * time.Second); acked.Load() < int64(i+1)*50 && time.Now().Before(end); {
			<-time.After(time.Millisecond)
		}
		before := acked.Load()
		to := filepath.Join(dir, fmt.Sprintf("backup-%d", i))
		c, err := l.Backup(t.Context(), to, ledger.CopyOptions{})
		if err != nil {
			t.Fatalf("backup: %v", err)
		}
		b := openedAt(t, to, ledger.Options{})
		if n := refusals(t, b); int64(n) < before {
			t.Errorf("the copy holds %d rows, %d were acknowledged before it began", n, before)
		}
		if err := refuse(b, "more"); err != nil {
			t.Errorf("write to the copy: %v", err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("close the copy: %v", err)
		}
		st, err := os.Stat(to)
		if err != nil || st.Mode().Perm() != 0o600 || c.Bytes == 0 || c.SchemaVersion != ledger.SchemaVersion {
			t.Errorf("the copy: %v, mode %v, told %+v", err, st.Mode(), c)
		}
	}
	close(stop)
	for range cap(done) {
		if err := <-done; err != nil {
			t.Errorf("write beside a backup: %v", err)
		}
	}
	alone(t, dir, "backup-0", "backup-1", "backup-2", "backup-3", "backup-4")
}

func TestBackupIsNeverReadableByOthers(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	l, to := live(t), filepath.Join(t.TempDir(), "b")
	if _, err := l.Backup(t.Context(), to, ledger.CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(to); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v), want 0600", st.Mode(), err)
	}
}

func TestBackupRefusesToReplace(t *testing.T) {
	l, dir := live(t), t.TempDir()
	text := filepath.Join(dir, "notes")
	if err := os.WriteFile(text, []byte("not a database, but somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Link(l.Path(), link); err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]error{
		text: ledger.ErrTarget, l.Path(): ledger.ErrTarget, l.Path() + "-wal": ledger.ErrTarget, link: ledger.ErrTarget,
		dir: ledger.ErrTarget, filepath.Join(dir, "none", "b"): ledger.ErrTarget,
	} {
		if _, err := l.Backup(t.Context(), to, ledger.CopyOptions{Replace: true}); !errors.Is(err, want) {
			t.Errorf("backup to %s: %v, want %v", filepath.Base(to), err, want)
		} else if strings.Contains(err.Error(), dir) {
			t.Errorf("the error names a path: %v", err)
		}
	}
	to := filepath.Join(dir, "b")
	if _, err := l.Backup(t.Context(), to, ledger.CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Backup(t.Context(), to, ledger.CopyOptions{}); !errors.Is(err, ledger.ErrExists) {
		t.Errorf("backup onto a backup: %v, want %v", err, ledger.ErrExists)
	}
	if err := refuse(l, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Backup(t.Context(), to, ledger.CopyOptions{Replace: true}); err != nil {
		t.Errorf("backup that replaces a backup: %v", err)
	}
	if n := refusals(t, openedAt(t, to, ledger.Options{ReadOnly: true})); n != 1 {
		t.Errorf("the new backup holds %d rows, want 1", n)
	}
	if b, err := os.ReadFile(text); err != nil || !bytes.HasPrefix(b, []byte("not a database")) {
		t.Errorf("somebody's file is %q (%v)", b, err)
	}
}

func TestBackupOfAnApplicationsFileIsAskedFor(t *testing.T) {
	path := application(t, "WAL")
	l := openedAt(t, path, ledger.Options{Create: true})
	to := filepath.Join(t.TempDir(), "b")
	if _, err := l.Backup(t.Context(), to, ledger.CopyOptions{}); !errors.Is(err, ledger.ErrForeign) {
		t.Errorf("backup: %v, want %v", err, ledger.ErrForeign)
	}
	c, err := l.Backup(t.Context(), to, ledger.CopyOptions{Foreign: true})
	if err != nil || c.Foreign != 1 {
		t.Errorf("backup with the application's tables: %+v, %v", c, err)
	}
}

func TestBackupThatIsCutShortLeavesNothing(t *testing.T) {
	l, dir := live(t), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Backup(ctx, filepath.Join(dir, "b"), ledger.CopyOptions{}); err == nil {
		t.Error("a backup whose caller has gone succeeded")
	}
	alone(t, dir)
}
