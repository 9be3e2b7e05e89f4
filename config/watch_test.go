package config_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/config"
)

const patience = 20 * time.Second

// watched is a watch whose looks arrive as what the file then held.
type watched struct {
	*testing.T
	path  string
	looks chan string
}

func watching(t *testing.T, path string, o config.WatchOptions, sure bool) *watched {
	t.Helper()
	w := &watched{T: t, path: path, looks: make(chan string, 100)}
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() {
		over <- config.Watch(ctx, path, o, func(_ context.Context, file config.Rested) bool {
			text, err := os.ReadFile(path)
			if err != nil {
				text = []byte("(gone)")
			}
			if !file.Still() {
				return true
			}
			if file.Last {
				text = append(text, " for long"...)
			}
			w.looks <- string(text)
			return sure
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-over; err != nil {
			t.Errorf("the watch ended with %v", err)
		}
	})
	return w
}

// sees waits for the next look.
func (w *watched) sees(want string) {
	w.Helper()
	select {
	case got := <-w.looks:
		if got != want {
			w.Errorf("look at %q, want %q", got, want)
		}
	case <-time.After(patience):
		w.Fatalf("no look within %s, want %q", patience, want)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func do(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// quick is a watch by events alone: what is only seen by looking now and then would
// exceed the patience of the tests.
var quick = config.WatchOptions{Rest: 20 * time.Millisecond, Long: 60 * time.Millisecond, Check: time.Hour}

func TestWatchSeesEveryWayToReplaceAFile(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, path, text string){
		"truncate and write": write,
		"remove and create": func(t *testing.T, path, text string) {
			do(t, os.Remove(path))
			write(t, path, text)
		},
		"rename over": func(t *testing.T, path, text string) {
			write(t, path+".new", text)
			do(t, os.Rename(path+".new", path))
		},
		"move away and create, as editors with a backup": func(t *testing.T, path, text string) {
			do(t, os.Rename(path, path+"~"))
			write(t, path, text)
		},
		"link over": func(t *testing.T, path, text string) {
			other := filepath.Join(t.TempDir(), text)
			write(t, other, text)
			do(t, os.Symlink(other, path+".new"), os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.yaml")
			write(t, path, "one")
			w := watching(t, path, quick, true)
			w.sees("one")
			for _, text := range []string{"two", "three", "four"} {
				replace(t, path, text)
				w.sees(text)
			}
		})
	}
}

func TestWatchSeesALinkSwappedTwoLevelsUp(t *testing.T) {
	dir := t.TempDir()
	etc := filepath.Join(dir, "etc")
	do(t, os.Mkdir(etc, 0o700))
	for _, v := range []string{"v1", "v2", "v3"} {
		do(t, os.Mkdir(filepath.Join(dir, v), 0o700))
		write(t, filepath.Join(dir, v, "c.yaml"), v)
	}
	swap := func(to string) {
		do(t, os.Symlink(filepath.Join("..", to), filepath.Join(etc, "..new")), os.Rename(filepath.Join(etc, "..new"), filepath.Join(etc, "..data")))
	}
	swap("v1")
	do(t, os.Symlink("..data/c.yaml", filepath.Join(etc, "c.yaml")), os.Symlink("etc", filepath.Join(dir, "config")))
	w := watching(t, filepath.Join(dir, "config", "c.yaml"), quick, true)
	w.sees("v1")
	swap("v2")
	w.sees("v2")
	write(t, filepath.Join(dir, "v2", "c.yaml"), "v2 again")
	w.sees("v2 again")
	swap("v3")
	w.sees("v3")
	do(t, os.Mkdir(filepath.Join(dir, "other"), 0o700))
	write(t, filepath.Join(dir, "other", "c.yaml"), "other")
	do(t, os.Symlink("other", filepath.Join(dir, "config.new")), os.Rename(filepath.Join(dir, "config.new"), filepath.Join(dir, "config")))
	w.sees("other")
}

func TestWatchSeesADirectoryThatComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc")
	path := filepath.Join(dir, "c.yaml")
	do(t, os.Mkdir(dir, 0o700))
	write(t, path, "one")
	w := watching(t, path, quick, true)
	w.sees("one")
	do(t, os.Rename(dir, dir+".old"))
	w.sees("(gone)")
	do(t, os.Mkdir(dir, 0o700))
	write(t, path, "two")
	w.sees("two")
	write(t, path, "three")
	w.sees("three")
	do(t, os.Mkdir(dir+".new", 0o700))
	write(t, filepath.Join(dir+".new", "c.yaml"), "four")
	do(t, unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, dir+".new", unix.RENAME_EXCHANGE)) // it is never missing
	w.sees("four")
	write(t, path, "five")
	w.sees("five")
}

func TestWatchWaitsForAFileToRest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	write(t, path, "one")
	w := watching(t, path, config.WatchOptions{Rest: 300 * time.Millisecond, Check: time.Hour}, true)
	w.sees("one")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := range 40 {
		<-tick.C
		write(t, path, "half")
		if i == 39 {
			write(t, path, "whole")
		}
	}
	w.sees("whole")
	if n := len(w.looks); n != 0 {
		t.Errorf("%d more looks, want none", n)
	}
}

func TestWatchLooksAgainForWhoIsNotSureAndNotForStrangers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	write(t, path, "one")
	w := watching(t, path, quick, false)
	w.sees("one")
	w.sees("one for long")
	for range 20 {
		write(t, path+".other", "x")
	}
	write(t, path, "two")
	w.sees("two")
	w.sees("two for long")
	if n := len(w.looks); n != 0 {
		t.Errorf("%d more looks, want none", n)
	}
}

func TestWatchWithoutEventsLooksNowAndThen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "deep", "etc", "c.yaml")
	do(t, os.MkdirAll(filepath.Dir(path), 0o700))
	write(t, path, "one")
	w := watching(t, path, config.WatchOptions{Rest: 20 * time.Millisecond, Check: 50 * time.Millisecond}, true)
	w.sees("one")
	other := filepath.Join(dir, "other", "etc")
	do(t, os.MkdirAll(other, 0o700))
	write(t, filepath.Join(other, "c.yaml"), "two") // of a directory above, nothing is told
	do(t, os.Rename(filepath.Join(dir, "deep"), filepath.Join(dir, "old")), os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, "deep")))
	w.sees("two")
	write(t, path, "three")
	w.sees("three")
}
