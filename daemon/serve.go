package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/outboxd/outboxd/api"
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
	loop("config", d.follow)
	loop("watchdog", d.watchdog)
	loop("purge", d.purges)
	loop("log", d.longLog)
	loops.Go(func() error { d.drainLimit(polling, support, cut); return nil })
	loops.Go(func() error { d.stopTime(polling, support); return nil })

	err = d.poll(polling, work)
	stopPolling() // it may have ended by itself
	stopSupport()
	return d.ended(errors.Join(err, loops.Wait()))
}

// began: it listens, and looks for work.
func (d *daemon) began() {
	d.tell(systemd.Ready(working))
	d.log.Info("ready")
	if d.o.Started != nil {
		d.o.Started()
	}
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

// What a stop asks of the service manager, and how often: TimeoutStopSec= that is
// shorter than the drain must not kill it in the middle of what it records. What
// comes after the drain limit, handlers that end and outcomes that are written, is
// done in drainAfter or not at all.
const (
	stopTick   = 2 * time.Second
	stopMore   = 20 * time.Second
	drainAfter = 20 * time.Second
)

// stopTime asks for more time while the daemon drains, and for a last piece of it
// to close everything. A drain that does not end gets none.
func (d *daemon) stopTime(polling, support context.Context) {
	select {
	case <-polling.Done():
	case <-support.Done():
	}
	tick := time.NewTicker(stopTick)
	defer tick.Stop()
	for end := time.Now().Add(d.cfg.Worker.DrainTimeout + drainAfter); time.Now().Before(end); {
		d.tell(systemd.Extend(stopMore))
		select {
		case <-support.Done():
			d.tell(systemd.Extend(stopMore))
			return
		case <-tick.C:
		}
	}
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

// tell: the service manager not listening is no reason to stop.
func (d *daemon) tell(err error) {
	if err != nil {
		d.log.Warn("service manager not told", zap.Error(err))
	}
}
