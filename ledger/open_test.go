package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

func openError(t *testing.T, path string, o ledger.Options) error {
	t.Helper()
	l, err := ledger.Open(t.Context(), path, o)
	if err == nil {
		_ = l.Close()
	}
	return err
}

// application makes a file as an application would, in the journal mode given.
func application(t *testing.T, mode string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := plain(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, stmt := range []string{`PRAGMA journal_mode = ` + mode, `CREATE TABLE customer (name TEXT)`, `INSERT INTO customer VALUES ('ada')`} {
		if _, err := db.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestApplicationFileIsNeverConverted(t *testing.T) {
	path := application(t, "DELETE")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []ledger.Options{{}, {Create: true}, {ReadOnly: true}} {
		if err := openError(t, path, o); !errors.Is(err, ledger.ErrNotWAL) || ledger.Code(err) != "NOT_WAL" {
			t.Errorf("open with %+v: got %v, want %v", o, err, ledger.ErrNotWAL)
		}
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file changed (%v)", err)
	}
}

func TestApplicationFileInWALKeepsItsTables(t *testing.T) {
	path := application(t, "WAL")
	if err := openError(t, path, ledger.Options{ReadOnly: true}); !errors.Is(err, ledger.ErrNoSchema) {
		t.Errorf("open for reading: got %v, want %v", err, ledger.ErrNoSchema)
	}
	l := reopen(t, path, ledger.Options{})
	var name string
	err := l.Read(t.Context(), func(v *ledger.View) error { return v.One(`SELECT name FROM customer`).Scan(&name) })
	if err != nil || name != "ada" {
		t.Errorf("got %q, %v, want ada", name, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, bytes.Repeat([]byte("not a database. "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(dir, "newer.db")
	l := reopen(t, newer, ledger.Options{Create: true})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := plain(newer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`UPDATE outbox_meta SET schema_version = schema_version + 1`); err != nil {
		t.Fatal(err)
	}
	_ = db.Close()
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(filepath.Join(dir, "nothing.db"), link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		o          ledger.Options
		want       error
	}{
		{"missing file", filepath.Join(dir, "missing.db"), ledger.Options{}, ledger.ErrNotFound},
		{"missing file, for reading", filepath.Join(dir, "missing.db"), ledger.Options{ReadOnly: true, Create: true}, ledger.ErrNotFound},
		{"missing directory", filepath.Join(dir, "missing", "outbox.db"), ledger.Options{Create: true}, ledger.ErrNotFound},
		{"link to nothing", link, ledger.Options{Create: true}, ledger.ErrNotFound},
		{"directory", dir, ledger.Options{}, ledger.ErrNotDatabase},
		{"garbage", garbage, ledger.Options{}, ledger.ErrNotDatabase},
		{"garbage, for reading", garbage, ledger.Options{ReadOnly: true}, ledger.ErrNotDatabase},
		{"newer schema", newer, ledger.Options{}, ledger.ErrNewer},
		{"newer schema, for reading", newer, ledger.Options{ReadOnly: true}, ledger.ErrNewer},
	} {
		if err := openError(t, c.path, c.o); !errors.Is(err, c.want) || ledger.Hint(err) != c.want.Error() {
			t.Errorf("%s: got %v, hint %q, want %v", c.name, err, ledger.Hint(err), c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "missing.db")); !os.IsNotExist(err) {
		t.Errorf("a missing file was created: %v", err)
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	l := fresh(t, ledger.Options{})
	path := l.Path()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(dir, 0o700) }()
	for d := dir; os.Getuid() == 0 && d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o555)
		defer func() { _ = os.Chmod(d, 0o700) }()
	}
	if os.Getuid() == 0 {
		if err := os.Chown(path, nobody, -1); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, "denied", path)
	p.wants("DATABASE_READ_ONLY")
	p.wants("DATABASE_READ_ONLY")
}

// nobody is a user that owns nothing.
const nobody = 65534

// openDenied opens the file as a user who may not write the directory.
func openDenied(path string) error {
	if os.Getuid() == 0 {
		if err := syscall.Setuid(nobody); err != nil {
			return err
		}
	}
	for _, o := range []ledger.Options{{}, {ReadOnly: true}} {
		_, err := ledger.Open(context.Background(), path, o)
		fmt.Println(ledger.Code(err))
	}
	return nil
}

// Only the owner reads payloads, from the first moment and also when the log is
// made anew.
func TestFilesAreTheOwnersOnly(t *testing.T) {
	for _, mask := range []int{0o022, 0o000} {
		t.Run(fmt.Sprintf("umask %03o", mask), func(t *testing.T) {
			defer syscall.Umask(syscall.Umask(mask))
			path := filepath.Join(t.TempDir(), "outbox.db")
			for range 2 {
				l := reopen(t, path, ledger.Options{Create: true})
				for _, suffix := range []string{"", "-wal", "-shm"} {
					st, err := os.Stat(path + suffix)
					if err != nil || st.Mode() != 0o600 {
						t.Errorf("outbox.db%s: got mode %v, %v, want 0600", suffix, st.Mode(), err)
					}
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestReadOnlyLedgerDoesNotWrite(t *testing.T) {
	l := fresh(t, ledger.Options{})
	r := reopen(t, l.Path(), ledger.Options{ReadOnly: true})
	if err := r.Write(t.Context(), insert(1, "")); !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("write: got %v, want %v", err, ledger.ErrClosed)
	}
	err := r.Read(t.Context(), func(v *ledger.View) error { return v.One(`INSERT INTO note VALUES (1, '') RETURNING k`).Scan(new(int)) })
	if err == nil || len(keys(t, l.Path())) != 0 {
		t.Errorf("a view wrote: %v", err)
	}
}

func TestOpeningWaitsForALock(t *testing.T) {
	path := fresh(t, ledger.Options{}).Path()
	holder := start(t, "hold", path)
	holder.wants("held")
	opened := make(chan error, 1)
	go func() {
		l, err := ledger.Open(context.Background(), path, ledger.Options{})
		if err == nil {
			err = l.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatalf("opened while another process held the lock: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	holder.goOn()
	if err := <-opened; err != nil {
		t.Errorf("after the lock: %v", err)
	}
}

func TestOpeningGivesUpALockInTime(t *testing.T) {
	path := fresh(t, ledger.Options{}).Path()
	start(t, "hold", path).wants("held")
	began := time.Now()
	if err := openError(t, path, ledger.Options{Busy: 60 * time.Millisecond}); !errors.Is(err, ledger.ErrBusy) {
		t.Errorf("got %v, want %v", err, ledger.ErrBusy)
	}
	if took := time.Since(began); took < 60*time.Millisecond || took > 5*time.Second {
		t.Errorf("gave up after %v, want 60 ms", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := ledger.Open(ctx, path, ledger.Options{Busy: time.Hour}); !errors.Is(err, ledger.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a deadline: got %v, want %v", err, ledger.ErrBusy)
	}
	l := reopen(t, path, ledger.Options{ReadOnly: true}) // reading needs no lock
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
