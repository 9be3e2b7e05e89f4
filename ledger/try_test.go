package ledger

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// What one closure tries does its worst: either nothing of it is left and the rest
// of the closure is kept, or the closure is told that all of it is gone.
func TestTryUndoesWhatItDidOrSaysThatItCannot(t *testing.T) {
	fatal := []string{"insert or rollback", "trigger", "disk full", "interrupt", "interrupt, swallowed",
		"swallowed error", "swallowed error of a row"}
	for _, k := range killers {
		if strings.HasPrefix(k.name, "panic") {
			continue // ends the closure
		}
		t.Run(k.name, func(t *testing.T) {
			l := batchFile(t, Options{})
			var tried error
			err := l.Write(context.Background(), func(tx *Tx) error {
				first := note(1)(tx)
				tried = tx.Try(func() error { return errors.Join(note(500)(tx), k.fn(tx)) })
				return errors.Join(first, note(2)(tx))
			})
			void := slices.Contains(fatal, k.name)
			if tried == nil || errors.Is(tried, ErrVoid) != void || (err != nil) != void {
				t.Errorf("tried: %v\nclosure: %v\nwant the transaction gone: %v", tried, err, void)
			}
			if k.code != 0 && sqliteCode(tried) != k.code {
				t.Errorf("tried: %v, want code %d", tried, k.code)
			}
			closeLedger(t, l)
			want := []int{1, 2}
			if void {
				want = nil
			}
			if got, twice := kept(t, l); !slices.Equal(got, want) || twice != 0 {
				t.Errorf("kept %v and %d twice, want %v", got, twice, want)
			}
		})
	}
}

func TestTryKeepsWhatWentWell(t *testing.T) {
	l := batchFile(t, Options{})
	if err := l.Write(context.Background(), func(tx *Tx) error {
		return tx.Try(func() error {
			inner := tx.Try(func() error { return errors.Join(note(2)(tx), errOwn) })
			if !errors.Is(inner, errOwn) {
				t.Errorf("inner: got %v, want %v", inner, errOwn)
			}
			return note(1)(tx)
		})
	}); err != nil {
		t.Error(err)
	}
	closeLedger(t, l)
	if got, _ := kept(t, l); !slices.Equal(got, []int{1}) {
		t.Errorf("kept %v, want only what the outer one did", got)
	}
}

func TestARefusalIsAboutTheStatementNotTheFile(t *testing.T) {
	l := batchFile(t, Options{})
	for stmt, want := range map[string]bool{
		`INSERT INTO note VALUES (0, 'again')`:         true,
		`INSERT INTO note VALUES (9, 'boom')`:          true,
		`INSERT INTO missing VALUES (1)`:               true,
		`INSERT INTO child VALUES (1, 12345)`:          true,
		`INSERT INTO note VALUES (8, zeroblob(2e9))`:   true,
		`INSERT INTO note VALUES (7, zeroblob(50000))`: false, // the file has no room
	} {
		err := l.Write(context.Background(), func(tx *Tx) error {
			var pages int64
			if err := tx.One(`PRAGMA page_count`).Scan(&pages); err != nil {
				return err
			}
			if err := tx.c.one(`PRAGMA max_page_count = ` + itoa(pages)).err; err != nil {
				return err
			}
			_, err := tx.Exec(stmt)
			return errors.Join(err, tx.c.one(`PRAGMA max_page_count = `+itoa(1<<30)).err)
		})
		if err == nil || (Refusal(err) != "") != want {
			t.Errorf("%s: got %v, want refused %v", stmt, err, want)
		}
	}
	closeLedger(t, l)
}
