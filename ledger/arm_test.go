package ledger_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/outboxd/outboxd/chaos/point"
	"github.com/outboxd/outboxd/ledger"
)

// TestOnlyAFileMadeForItCanBeBroken: no plan is turned on for a file that was
// created without the mark, and opening it again does not mark it.
func TestOnlyAFileMadeForItCanBeBroken(t *testing.T) {
	plan, err := point.Parse("send.sent=kill@1000000") // never passed here
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name          string
		first, second ledger.Options
		want          error
	}{
		{"an ordinary file", ledger.Options{Create: true}, ledger.Options{Armed: plan}, ledger.ErrNotForChaos},
		{"an ordinary file, with the flag", ledger.Options{Create: true}, ledger.Options{Create: true, ForChaos: true, Armed: plan}, ledger.ErrNotForChaos},
		{"a new file without the flag", ledger.Options{Create: true, Armed: plan}, ledger.Options{}, ledger.ErrNotForChaos},
		{"a file made for it", ledger.Options{Create: true, ForChaos: true}, ledger.Options{Armed: plan}, nil},
		{"a file made for it now", ledger.Options{Create: true, ForChaos: true, Armed: plan}, ledger.Options{Armed: plan}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "outbox.db")
			var got error
			for _, o := range []ledger.Options{c.first, c.second} {
				l, err := ledger.Open(t.Context(), path, o)
				if err == nil {
					err = l.Close()
				}
				if err != nil {
					got = err
					break
				}
			}
			if !errors.Is(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestARestoreBreaksOnlyWhereAFileMadeForItIsReplaced(t *testing.T) {
	plan, err := point.Parse("send.sent=kill@1000000") // never passed here
	if err != nil {
		t.Fatal(err)
	}
	path, backup := backedUp(t)
	if _, err := ledger.Restore(t.Context(), path, backup, ledger.CopyOptions{Armed: plan}, time.UnixMilli(moment)); !errors.Is(err, ledger.ErrNotForChaos) {
		t.Errorf("over an ordinary file: got %v, want %v", err, ledger.ErrNotForChaos)
	}
	if n, err := filepath.Glob(path + ".replaced-*"); err != nil || len(n) > 0 {
		t.Errorf("it was replaced all the same: %v, %v", n, err)
	}
}
