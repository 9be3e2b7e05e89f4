package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/poller"
	"github.com/outboxd/outboxd/systemd"
)

// serve runs the loops. Three contexts: polling ends claiming, work ends
// handlers, support ends everything that the other two still need.
func (d *daemon) serve(ctx context.Context) error {
	ln, err := api.Listen(d.cfg.Listen.Socket, d.cfg.Listen.SocketMode)
	if err != nil {
		return &ListenError{err}
	}
	polling, stopPolling := context.WithCancel(ctx)
	defer stopPolling()
	work, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	support, stopSupport := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSupport()

	var loops errgroup.Group
	loop := func(name string, run func(context.Context) error) {
		loops.Go(func() error {
			err := run(support)
			if err != nil {
				stopPolling() // the daemon is not whole without it
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	loop("mark", d.remember)
	loop("keeper", d.keeper.Run)
	loop("socket", func(ctx context.Context) error { return api.Serve(ctx, ln, d.api, d.log) })
	loop("watch", d.watch)
	loop("reload", d.reloads)
	loop("watchdog", d.watchdog)
	loops.Go(func() error { d.drainLimit(polling, support, cut); return nil })

	d.tell(systemd.Ready("accepting and working"))
	d.log.Info("ready")
	if d.o.Started != nil {
		d.o.Started()
	}
	err = d.poll(polling, work)
	stopPolling() // it may have ended by itself
	stopSupport()
	return d.ended(errors.Join(err, loops.Wait()))
}

func (d *daemon) ended(err error) error {
	if n := d.poller.CutOff(); n > 0 {
		d.log.Warn("drain limit cut off work in flight", zap.Int("attempts", n))
		return errors.Join(err, ErrCutOff)
	}
	d.log.Info("stopped")
	return err
}

// drainLimit cuts off the handlers when the drain has lasted too long, or when
// somebody is in a hurry.
func (d *daemon) drainLimit(polling, support context.Context, cut context.CancelCauseFunc) {
	select {
	case <-polling.Done():
	case <-d.ledger.Dead(): // polling ends by itself, and waits for what runs
	}
	d.tell(systemd.Stopping("draining"))
	d.log.Info("draining", zap.Duration("limit", d.cfg.Worker.DrainTimeout))
	limit := time.NewTimer(d.cfg.Worker.DrainTimeout)
	defer limit.Stop()
	hurry := false
	select {
	case <-support.Done():
		return
	case <-limit.C:
	case <-d.o.Hurry:
		hurry = true
	}
	cut(poller.ErrCutOff)
	d.abandon(support, hurry)
}

// How long somebody in a hurry waits for another process's lock on the file, and
// how often that is looked at.
const (
	hurryTime = time.Second
	hurryTick = 100 * time.Millisecond
)

// abandon gives up outcomes that the file does not take, once somebody is in a
// hurry.
func (d *daemon) abandon(support context.Context, hurry bool) {
	tick := time.NewTicker(hurryTick)
	defer tick.Stop()
	for {
		select {
		case <-support.Done():
			return
		case <-d.o.Hurry:
			hurry = true
		case <-tick.C:
		}
		if h := d.ledger.Health(); hurry && (h.Full || h.Busy > hurryTime) {
			d.poller.Abandon()
			return
		}
	}
}

// watch wakes the poller on other processes' commits. Without it the poll
// interval is all there is, which is slower but not wrong.
func (d *daemon) watch(ctx context.Context) error {
	if err := d.poller.Watch(ctx); err != nil {
		d.log.Warn("other processes' commits are noticed by polling only", zap.Error(err))
	}
	return nil
}

// reloads replaces the work by what the config says now, as often as asked.
func (d *daemon) reloads(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.o.Reload:
			d.tell(systemd.Reloading())
			status := "accepting and working"
			if err := d.reload(ctx); err != nil {
				d.log.Error("config not reloaded: the old one stays", zap.Error(err))
				status = "config not reloaded: the old one stays"
			}
			d.tell(systemd.Ready(status))
		}
	}
}

func (d *daemon) reload(ctx context.Context) error {
	if d.o.Load == nil {
		return nil
	}
	cfg, err := d.o.Load()
	if err != nil {
		return err
	}
	work, closeWork, err := assemble(cfg, d.o.Tools)
	if err != nil {
		return err
	}
	if err := d.poller.Swap(ctx, work); err != nil {
		closeWork()
		return err
	}
	d.api.Swap(access(cfg))
	d.close()
	d.close = closeWork
	d.log.Info("config reloaded", zap.Int("tools", len(work.Registry.Names())))
	if changed := restarts(d.cfg, cfg); len(changed) > 0 {
		d.log.Warn("sections of the config take effect at the next start only", zap.Strings("sections", changed))
	}
	return nil
}

// restarts names the sections that differ from those that the daemon was started
// with and are looked at only then.
func restarts(old, cfg *config.Config) (sections []string) {
	was, is := old.Worker, cfg.Worker
	was.PerTool = is.PerTool // each tool has it by now
	for _, s := range []struct {
		name string
		same bool
	}{
		{"database", old.Database == cfg.Database},
		{"listen", old.Listen == cfg.Listen},
		{"log", old.Log == cfg.Log},
		{"worker", was == is},
		{"lease", old.Lease == cfg.Lease},
	} {
		if !s.same {
			sections = append(sections, s.name)
		}
	}
	return sections
}

// watchdog tells the service manager that this process runs, from the start until
// the drain is over. It judges nothing: a daemon whose file is lost ends by itself,
// and must not be killed while it waits for what runs.
func (d *daemon) watchdog(ctx context.Context) error {
	every, err := systemd.WatchdogInterval()
	if err != nil || every == 0 {
		return err
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			d.tell(systemd.Alive())
		}
	}
}

// tell: the service manager not listening is no reason to stop.
func (d *daemon) tell(err error) {
	if err != nil {
		d.log.Warn("service manager not told", zap.Error(err))
	}
}
