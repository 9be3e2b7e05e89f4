package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/hook"
	"github.com/outboxd/outboxd/lease"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/poller"
)

// Local opens the file for one command, without a daemon, and returns a client
// of the same API: the caller is this process's uid. A command that writes holds
// the lock beside others of its kind; where a daemon holds it, the answer is
// *lease.HeldError. close must be called.
//
// Handlers are built only for a command that Sends: the others need not be able
// to read secrets.
func Local(ctx context.Context, cfg *config.Config, o Options, log *zap.Logger) (c *api.Client, closeAll func() error, err error) {
	d := &daemon{cfg: cfg, o: o, log: log, metrics: newMetrics(), close: func() {}}
	end := d.end
	defer func() {
		if err != nil {
			err = errors.Join(err, end())
		}
	}()
	work, err := d.localWork()
	if err != nil {
		return nil, nil, err
	}
	if err := d.openLocal(ctx); err != nil {
		return nil, nil, err
	}
	d.build(work)
	return api.NewClient(api.Local(d.api, os.Geteuid())), end, nil
}

func (d *daemon) openLocal(ctx context.Context) (err error) {
	if !d.o.ReadOnly {
		if err := d.shareLock(ctx); err != nil {
			return err
		}
	}
	shared, err := Group(d.cfg)
	if err != nil {
		return err
	}
	var side ledger.Sidecar
	if d.lock != nil {
		side = d.lock
	}
	d.ledger, err = ledger.Open(ctx, d.cfg.Database.Path, ledger.Options{
		Sidecar: side,
		Create:  d.o.Create, Group: shared, ReadOnly: d.o.ReadOnly, Readers: d.cfg.Database.Readers,
		AllowNetworkFS: d.cfg.Database.AllowNetworkFS, Complete: d.lock != nil && d.lock.Failed(), Now: d.o.Now,
		Ended: d.follows,
	})
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	if d.lock == nil {
		return nil
	}
	return d.hold(ctx)
}

// shareLock locks the file beside the database, but leaves none beside a
// database that is not there.
func (d *daemon) shareLock(ctx context.Context) (err error) {
	if !d.o.Create {
		if _, err := os.Stat(d.cfg.Database.Path); errors.Is(err, fs.ErrNotExist) {
			return ledger.ErrNotFound
		}
	}
	me := lease.Holder{PID: os.Getpid(), Command: "one-shot", Since: d.now().Truncate(time.Second)}
	d.lock, err = lease.Acquire(ctx, d.cfg.Database.Path, lease.Shared, me)
	return err
}

// localWork is assemble, without handlers where none is called.
func (d *daemon) localWork() (*poller.Work, error) {
	if d.o.Sends {
		work, closeWork, err := assemble(d.cfg, d.o.Tools)
		if err == nil {
			d.close = closeWork
			d.hook.Store(work.Hook)
		}
		return work, err
	}
	registry, tools, err := register(d.cfg, d.o.Tools)
	if err != nil {
		return nil, err
	}
	guards, err := guardsOf(tools, d.o.Tools, true)
	if err != nil {
		return nil, err
	}
	told := hook.New(registry, d.cfg.Hook)
	d.hook.Store(told)
	return &poller.Work{Registry: registry, Hook: told, Guards: guards, Roles: guard.Configured(d.cfg.Principals)}, nil
}
