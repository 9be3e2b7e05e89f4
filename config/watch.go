package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// WatchOptions of Watch. The zero value is good.
type WatchOptions struct {
	Rest  time.Duration // how long a file must not have changed to be looked at; 250ms unless said
	Long  time.Duration // the same, to be looked at once more by who had doubts; 2s unless said
	Check time.Duration // how often the file is looked for without an event; 5s unless said
	Late  func(error)   // called where events cannot be had, so that Check is all there is; nil: nothing
}

func (o WatchOptions) filled() WatchOptions {
	or := func(d, other time.Duration) time.Duration {
		if d > 0 {
			return d
		}
		return other
	}
	o.Rest, o.Long, o.Check = or(o.Rest, 250*time.Millisecond), or(o.Long, 2*time.Second), or(o.Check, 5*time.Second)
	if o.Late == nil {
		o.Late = func(error) {}
	}
	return o
}

// Rested is a file that has not changed for a while.
type Rested struct {
	Last  bool        // it has rested for long: there is no other look
	Still func() bool // it is what it was when it was looked at
}

// Watch calls look each time the file at path has come to rest, beginning with the
// file as it is, however it was replaced: written again, removed and created,
// renamed over, or behind a symbolic link that was swapped anywhere in the path. A
// look that is not sure is repeated once after a longer rest. Calls follow each
// other. Watch returns when ctx ends.
func Watch(ctx context.Context, path string, o WatchOptions, look func(context.Context, Rested) (sure bool)) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("watch config: %w", err)
	}
	w := watch{path: path, o: o.filled(), look: look, dirs: map[string]identity{}}
	var events chan fsnotify.Event
	var failures chan error
	if w.notifier, err = fsnotify.NewWatcher(); err != nil {
		w.o.Late(fmt.Errorf("watch config: %w", err))
	} else {
		defer func() { _ = w.notifier.Close() }() // nothing is lost with it
		events, failures = w.notifier.Events, w.notifier.Errors
	}
	w.run(ctx, events, failures)
	return nil
}

// watch belongs to one goroutine.
type watch struct {
	path     string
	o        WatchOptions
	look     func(context.Context, Rested) bool
	notifier *fsnotify.Watcher // nil: there is none

	dirs  map[string]identity // what is watched
	names map[string]bool     // the paths that matter: links, directories on the way, the file
	last  mark
	since time.Time // when last was first seen
	sure  bool      // nothing is to be said about last any more
	doubt bool      // it was looked at once
}

func (w *watch) run(ctx context.Context, events <-chan fsnotify.Event, failures <-chan error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	w.follow()
	w.last, w.since = markOf(w.path), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			if !w.names[e.Name] {
				continue
			}
		case err := <-failures:
			_ = err // whatever it is: events may have been lost
		case <-timer.C:
		}
		timer.Reset(w.step(ctx))
	}
}

// step looks at the file if it has rested, and returns when to come again.
func (w *watch) step(ctx context.Context) time.Duration {
	w.follow()
	if now := markOf(w.path); now != w.last {
		w.last, w.since, w.sure, w.doubt = now, time.Now(), false, false
	}
	rest := w.o.Rest
	if w.doubt {
		rest = w.o.Long
	}
	switch left := rest - time.Since(w.since); {
	case w.sure:
		return w.o.Check
	case left > 0:
		return left
	}
	seen := w.last
	sure := w.look(ctx, Rested{Last: w.doubt, Still: func() bool { return markOf(w.path) == seen }})
	w.sure, w.doubt = sure || w.doubt, true
	return 0 // it may have changed meanwhile
}

// follow watches each directory in which a link of the path, or the file, stands.
// A directory on the way that is replaced by another is noticed at the next step.
func (w *watch) follow() {
	if w.notifier == nil {
		return
	}
	wanted, names := chain(w.path)
	w.names = names
	for dir := range w.dirs {
		if !wanted[dir] {
			_ = w.notifier.Remove(dir) // it may be gone
			delete(w.dirs, dir)
		}
	}
	for dir := range wanted {
		id := identityOf(dir)
		if w.dirs[dir] == id {
			continue
		}
		if _, had := w.dirs[dir]; had {
			_ = w.notifier.Remove(dir) // another directory has its name now
		}
		if w.notifier.Add(dir) == nil {
			w.dirs[dir] = id
		} else {
			delete(w.dirs, dir) // tried again at the next step
		}
	}
}

// mostLinks is where the kernel gives up, too.
const mostLinks = 40

// chain resolves path and returns the directories in which a link, the file or what
// is missing stands, and the paths of all of those.
func chain(path string) (dirs, names map[string]bool) {
	dirs, names = map[string]bool{}, map[string]bool{}
	at, rest := "/", strings.Split(strings.TrimPrefix(filepath.Clean(path), "/"), "/")
	for links := 0; len(rest) > 0; {
		name := filepath.Join(at, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(name)
		isLink, missing := err == nil && links < mostLinks, errors.Is(err, fs.ErrNotExist)
		if isLink || missing || len(rest) == 0 {
			dirs[at], names[name], names[at] = true, true, true
		}
		switch {
		case missing:
			return dirs, names // it will appear here
		case !isLink:
			at = name
			continue
		case filepath.IsAbs(target):
			at = "/"
		}
		links++
		rest = append(strings.Split(strings.Trim(filepath.Clean(target), "/"), "/"), rest...)
	}
	return dirs, names
}

type identity struct{ device, inode uint64 }

func identityOf(path string) identity {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{uint64(st.Dev), st.Ino}
}

// mark tells one content of the file from another without reading it.
type mark struct {
	identity
	size              int64
	modified, changed syscall.Timespec
	gone              bool
}

func markOf(path string) mark {
	info, err := os.Stat(path)
	if err != nil {
		return mark{gone: true}
	}
	m := mark{size: info.Size(), identity: identityOf(path)}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		m.modified, m.changed = st.Mtim, st.Ctim
	}
	return m
}
