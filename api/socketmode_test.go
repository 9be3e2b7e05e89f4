package api_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/api"
)

// Somebody looks at the directory as fast as it goes, while a daemon is started
// again and again under the widest umask.
func TestTheSocketIsNeverOpenToOthersNotForAMoment(t *testing.T) {
	defer unix.Umask(unix.Umask(0))
	dir := shortDir(t)
	path := filepath.Join(dir, "s")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var seen atomic.Int64
	over := make(chan struct{})
	go func() {
		defer close(over)
		for !stop.Load() {
			if st, err := os.Lstat(path); err == nil {
				seen.Add(1)
				if st.Mode() != fs.ModeSocket|0o660 {
					t.Errorf("the socket is seen with %s", st.Mode())
					return
				}
			}
			others, err := filepath.Glob(filepath.Join(dir, ".s*"))
			if err != nil {
				t.Error(err)
				return
			}
			for _, other := range others {
				if st, err := os.Lstat(other); err == nil && st.Mode() != fs.ModeDir|0o700 {
					t.Errorf("%s, where it is made, is seen with %s", filepath.Base(other), st.Mode())
					return
				}
			}
		}
	}()
	for i := range 200 {
		l, err := api.Listen(path, 0o660)
		if err != nil {
			t.Fatal(err)
		}
		for before := seen.Load(); i%10 == 0 && seen.Load() == before && !t.Failed(); { // it has been seen
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	<-over
	t.Logf("looked at it %d times", seen.Load())
}

func TestTheSocketIsNotMadeWhereEverybodyMayReplaceIt(t *testing.T) {
	dir := shortDir(t)
	for mode, want := range map[fs.FileMode]error{
		0o777: api.ErrOpenDirectory, 0o773: api.ErrOpenDirectory, 0o777 | fs.ModeSticky: nil, 0o775: nil, 0o755: nil, 0o700: nil,
	} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		l, err := api.Listen(filepath.Join(dir, "s"), 0o600)
		if !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Errorf("in a directory %s: got %v, want %v", mode, err, want)
		}
		if err == nil {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		} else if strings.Contains(err.Error(), dir) {
			t.Errorf("%v names the path", err)
		}
	}
}
