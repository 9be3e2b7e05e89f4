package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/outboxd/outboxd/ledger"
)

// Several processes may find no file at the same moment: each of them creates it,
// or opens what another one has just created.
func TestAFileThatSeveralCreateAtOnce(t *testing.T) {
	const processes = 4
	rounds := 20
	if raceDetector {
		rounds = 5 // each of the 24 that open the file takes ten times as long
	}
	dir := t.TempDir()
	var all []*process
	for range processes {
		all = append(all, start(t, "create", dir))
	}
	for round := range rounds {
		for _, p := range all {
			p.wants("ready")
		}
		for _, p := range all {
			p.goOn()
		}
		for _, p := range all {
			p.wants(fmt.Sprintf("opened %d", round))
		}
		l := reopen(t, filepath.Join(dir, fmt.Sprint(round, ".db")), ledger.Options{})
		if got, want := l.Epoch(), int64(6*processes+1); got != want {
			t.Errorf("round %d: boot epoch %d, want %d", round, got, want)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// createTogether opens a new file of dir each time that it is told to, twice at
// once.
func createTogether(dir string) error {
	for round := 0; ; round++ {
		path := filepath.Join(dir, fmt.Sprint(round, ".db"))
		fmt.Println("ready")
		waitInput()
		var twice sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			twice.Go(func() {
				l, err := ledger.Open(context.Background(), path, ledger.Options{Create: true})
				if err == nil {
					err = l.Close()
				}
				errs[i] = err
			})
		}
		twice.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		fmt.Println("opened", round)
	}
}
