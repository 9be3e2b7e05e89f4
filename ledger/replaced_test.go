package ledger_test

import (
	"errors"
	"os"
	"testing"

	"github.com/outboxd/outboxd/ledger"
)

// Whatever happens to the file's names, nothing is acknowledged into the void.
func TestReplacedFile(t *testing.T) {
	rename := func(suffix string) func(string) error {
		return func(path string) error { return os.Rename(path+suffix, path+suffix+".old") }
	}
	remove := func(suffix string) func(string) error {
		return func(path string) error { return os.Remove(path + suffix) }
	}
	for name, change := range map[string]func(path string) error{
		"moved":         rename(""),
		"removed":       remove(""),
		"log moved":     rename("-wal"),
		"log removed":   remove("-wal"),
		"index removed": remove("-shm"),
		"replaced by a copy": func(path string) error {
			b, err := os.ReadFile(path) // after this the locks are gone, but so is the file
			return errors.Join(err, os.WriteFile(path+".new", b, 0o600), os.Rename(path+".new", path))
		},
		"all removed": func(path string) error {
			return errors.Join(os.Remove(path), os.Remove(path+"-wal"), os.Remove(path+"-shm"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := fresh(t, ledger.Options{})
			mustWrite(t, l, insert(1, ""))
			if err := change(l.Path()); err != nil {
				t.Fatal(err)
			}
			_, before := os.Stat(l.Path())
			// The readers have not been used yet: each opens the file by its name.
			read := l.Read(t.Context(), func(v *ledger.View) error { return v.One(`SELECT count(*) FROM note`).Scan(new(int)) })
			if !errors.Is(read, ledger.ErrReplaced) {
				t.Errorf("read: got %v, want %v", read, ledger.ErrReplaced)
			}
			for i := range 2 {
				if err := l.Write(t.Context(), insert(2+i, "")); !errors.Is(err, ledger.ErrReplaced) {
					t.Errorf("write %d: got %v, want %v", i, err, ledger.ErrReplaced)
				}
			}
			<-l.Dead()
			if !errors.Is(l.Err(), ledger.ErrReplaced) || !errors.Is(l.Health().Err, ledger.ErrReplaced) || l.Check() == nil {
				t.Errorf("the ledger says %v, want %v", l.Err(), ledger.ErrReplaced)
			}
			if err := l.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if _, after := os.Stat(l.Path()); os.IsNotExist(before) && !os.IsNotExist(after) {
				t.Error("a missing file was created anew")
			}
		})
	}
}

// The look at each poll finds it without a write.
func TestCheckEndsTheLedger(t *testing.T) {
	l := fresh(t, ledger.Options{})
	if err := l.Check(); err != nil {
		t.Fatalf("check of an untouched file: %v", err)
	}
	if err := os.Rename(l.Path(), l.Path()+".old"); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(); !errors.Is(err, ledger.ErrReplaced) {
		t.Errorf("check: got %v, want %v", err, ledger.ErrReplaced)
	}
	<-l.Dead()
	ran := false
	err := l.Write(t.Context(), func(*ledger.Tx) error { ran = true; return nil })
	if !errors.Is(err, ledger.ErrReplaced) || ran {
		t.Errorf("write: got %v, ran %v, want %v, not run", err, ran, ledger.ErrReplaced)
	}
}

// A closed ledger must not remove the log of the file that took its place.
func TestClosingLeavesTheNewFileAlone(t *testing.T) {
	l := fresh(t, ledger.Options{})
	path := l.Path()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(path+suffix, path+suffix+".old"); err != nil {
			t.Fatal(err)
		}
	}
	other := reopen(t, path, ledger.Options{Create: true})
	mustWrite(t, other, func(tx *ledger.Tx) error {
		_, err := tx.Exec(`CREATE TABLE note (k INTEGER PRIMARY KEY, v TEXT)`)
		return err
	})
	if err := l.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	mustWrite(t, other, insert(7, ""))
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if !keys(t, path)[7] {
		t.Error("the new file lost a row")
	}
}
