package poller

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// Watch wakes the poller when another process writes to the file, until ctx
// ends. It watches the directory: a descriptor on the file itself would drop
// SQLite's locks when it is closed. The event comes before the commit is
// visible, which does no harm, since a pass waits for the writer's lock.
func (p *Poller) Watch(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch for commits: %w", err)
	}
	defer func() { _ = w.Close() }() // it only gives back descriptors
	if err := w.Add(filepath.Dir(p.l.Path())); err != nil {
		return fmt.Errorf("watch the database's directory: %w", err)
	}
	p.Wake() // what was committed just before was not seen
	log := filepath.Base(p.l.Path()) + "-wal"
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.Events:
			if !ok {
				return nil
			}
			if filepath.Base(e.Name) == log && e.Has(fsnotify.Write|fsnotify.Create) {
				signal(p.written)
			}
		case _, ok := <-w.Errors: // an overflow: events were dropped, so look
			if !ok {
				return nil
			}
			p.Wake()
		}
	}
}
