package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/chaos/point"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/hook"
	"github.com/outboxd/outboxd/lease"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/poller"
)

// ErrCutOff says that the drain limit ended work that was in flight. It is
// recorded.
var ErrCutOff = errors.New("the drain limit cut off work in flight: it is recorded and goes on at the next start")

// ListenError says why the daemon cannot listen on its socket.
type ListenError struct{ Err error }

// Error names the cause, without the path.
func (e *ListenError) Error() string { return "listen: " + e.Err.Error() }

// Unwrap is the cause, an error of api.Listen.
func (e *ListenError) Unwrap() error { return e.Err }

// lockWait is how long a start waits for one-shot commands to go.
const lockWait = 5 * time.Second

// Options of Run and Local. The zero value is a daemon without tools of its own.
type Options struct {
	Tools   []Tool                         // tools whose handlers are Go functions
	Load    func() (*config.Config, error) // where a reload gets its config; nil: there is none
	Reload  <-chan os.Signal               // asks for one
	File    string                         // a change of it asks for one, too; "": none does
	Watch   config.WatchOptions            // how File is watched
	Hurry   <-chan os.Signal               // after ctx ended: do not wait for the drain limit
	Version string
	Now     func() time.Time // nil: time.Now
	Armed   point.Plan       // where this process breaks; only for a database that was created for it
	Started func()           // called once the daemon is ready; nil: nothing

	// Silenced is how many lines were kept out of the log because there were too
	// many. nil: none.
	Silenced func() uint64

	ForChaos bool // mark a database that is created as one that may be broken
	Create   bool // Local: create a missing database file
	ReadOnly bool // Local: for commands that only look
	Sends    bool // Local: for commands that may call a handler
}

// daemon is what is open between start and stop.
type daemon struct {
	cfg     *config.Config
	o       Options
	log     *zap.Logger
	lock    *lease.Lock
	ledger  *ledger.Ledger
	keeper  *lease.Keeper
	poller  *poller.Poller
	metrics *metrics
	api     *api.API

	retention atomic.Pointer[config.Retention] // of the present config
	hook      atomic.Pointer[hook.Hook]        // of the present config
	fullSince time.Time                        // when the disk was first found full; zero: it is not

	asked  chan chan reloaded // reloads that are waited for
	looks  chan look          // the config file has come to rest
	halted chan struct{}      // closed: there is no reload any more

	// Of the goroutine of reloads, once that runs.
	close     func()         // the handlers of the present work
	present   *config.Config // what is in force
	text      []byte         // the file that it comes from; nil: not known
	complaint string         // why the last reload failed; "": it went well

	told atomic.Pointer[inForce] // present and complaint, for everybody
}

// Run works until ctx ends and then drains. It returns nil after a clean drain,
// ErrCutOff after one that was not, *lease.HeldError where another daemon is at
// work, and otherwise what ended it.
func Run(ctx context.Context, cfg *config.Config, o Options, log *zap.Logger) (err error) {
	d, err := start(ctx, cfg, o, log)
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, errStopped)) {
		return nil // stopped before it had begun
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.end()) }()
	return d.serve(ctx)
}

// start opens everything, or nothing.
func start(ctx context.Context, cfg *config.Config, o Options, log *zap.Logger) (d *daemon, err error) {
	d = &daemon{
		cfg: cfg, o: o, log: log, metrics: newMetrics(), asked: make(chan chan reloaded), looks: make(chan look),
		halted: make(chan struct{}), close: func() {}, present: cfg,
	}
	d.metrics.logs(o.Silenced)
	d.text = d.fileText()
	d.metrics.build(o.Version)
	defer func() {
		if err != nil {
			err = errors.Join(err, d.end())
		}
	}()
	if err := d.untilSpace(ctx, func() error { return d.takeLock(ctx) }); err != nil {
		return d, err
	}
	work, closeWork, err := assemble(cfg, o.Tools)
	if err != nil {
		return d, err
	}
	d.close = closeWork
	d.hook.Store(work.Hook)
	warnOfTools(log, cfg.Principals, work)
	if err := d.untilSpace(ctx, func() error { return d.open(ctx) }); err != nil {
		return d, err
	}
	if err := d.untilSpace(ctx, func() error { return d.hold(ctx) }); err != nil {
		return d, err
	}
	if cfg.Worker.Exclusive {
		if err := d.untilSpace(ctx, func() error { return d.takeOver(ctx) }); err != nil {
			return d, err
		}
	}
	d.build(work)
	return d, nil
}

func (d *daemon) takeOver(ctx context.Context) error {
	n, err := lease.TakeOver(ctx, d.ledger)
	d.metrics.lapsed(n)
	if err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	d.log.Info("database opened", zap.Int64("epoch", d.ledger.Epoch()), zap.Int("lapsed", n))
	return nil
}

func (d *daemon) takeLock(ctx context.Context) (err error) {
	mode := lease.Exclusive
	if !d.cfg.Worker.Exclusive {
		mode = lease.Shared
	}
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	me := lease.Holder{PID: os.Getpid(), Command: "run", Since: d.now()}
	d.lock, err = lease.Acquire(waiting, d.cfg.Database.Path, mode, me)
	return err
}

func (d *daemon) now() time.Time {
	if d.o.Now != nil {
		return d.o.Now()
	}
	return time.Now()
}

// open opens the file, once. After a daemon that met an input/output error the
// log is copied completely first, and only then is that forgotten.
func (d *daemon) open(ctx context.Context) (err error) {
	shared, err := Group(d.cfg)
	if err != nil {
		return err
	}
	if d.ledger == nil {
		u := upgrade{d: d}
		d.ledger, err = ledger.Open(ctx, d.cfg.Database.Path, ledger.Options{
			Create: true, Group: shared, Readers: d.cfg.Database.Readers, AllowNetworkFS: d.cfg.Database.AllowNetworkFS,
			Complete: d.lock.Failed(), Migrate: d.cfg.Worker.Exclusive, Now: d.o.Now, Observe: d.metrics.batch, Migrating: u.step,
			ForChaos: d.o.ForChaos, Armed: d.o.Armed, Sidecar: d.lock, Ended: d.follows,
		})
		u.end()
	}
	if ledger.Broken(err) {
		err = errors.Join(err, d.lock.SetFailed(true))
	}
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	return d.lock.SetFailed(false)
}

func (d *daemon) build(work *poller.Work) {
	d.retention.Store(&d.cfg.Retention)
	d.keeper = lease.NewKeeper(d.ledger, lease.Options{
		TTL: d.cfg.Lease.TTL, Heartbeat: d.cfg.Lease.Heartbeat,
		Renewed: d.metrics.renewed, Lapsed: d.metrics.lapsed,
	}, d.log)
	d.poller = poller.New(d.ledger, d.keeper, work, poller.Options{
		Concurrency: d.slots(), PollInterval: d.cfg.Worker.PollInterval,
		TookOver: d.cfg.Worker.Exclusive, Check: d.check, Observer: d, Began: d.began,
	}, d.log)
	deps := api.Deps{
		Ledger: d.ledger, Poller: d.poller, Access: access(d.cfg), Metrics: d.metrics.handler(d.ledger, d.poller),
		Submitted: d.metrics.submitted, Ready: d.ready, Live: d.ledger.Err, Log: d.log, Version: d.o.Version, Purge: d.purge,
	}
	if d.asked != nil {
		deps.Reload, deps.Config = d.Reload, d.inForce
		d.told.Store(&inForce{cfg: d.present})
	}
	d.api = api.New(deps)
}

// check is asked at every pass: what is open must still be what the paths name.
func (d *daemon) check() error {
	d.noteSpace()
	if err := d.ledger.Check(); err != nil || !d.cfg.Worker.Exclusive {
		return err
	}
	return d.lock.Check()
}

// ready is nil while work can be accepted and done.
func (d *daemon) ready() error {
	h := d.ledger.Health()
	switch {
	case h.Err != nil:
		return h.Err
	case h.Full:
		return ledger.ErrDiskFull
	case h.Busy > d.cfg.Lease.Heartbeat:
		return fmt.Errorf("%w, for %s", ledger.ErrBusy, h.Busy.Round(time.Second))
	}
	return d.poller.Undrained()
}

// end closes what start opened, in the reverse order. The next start must also
// know of an input/output error that came only while closing.
func (d *daemon) end() error {
	d.close()
	var errs []error
	if d.ledger != nil {
		errs = append(errs, d.settleSidecar(), d.ledger.Close())
	}
	if d.lock != nil {
		if d.failed() {
			errs = append(errs, d.lock.SetFailed(true))
		}
		errs = append(errs, d.lock.Unlock())
	}
	return errors.Join(errs...)
}

// remember writes down an input/output error at once: the next start must know,
// however this process ends.
func (d *daemon) remember(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-d.ledger.Dead():
	}
	if !d.failed() {
		return nil
	}
	return d.lock.SetFailed(true)
}

// failed: what was written last may not have reached the disk.
func (d *daemon) failed() bool {
	return d.ledger != nil && d.ledger.Err() != nil && !errors.Is(d.ledger.Err(), ledger.ErrReplaced)
}

// Attempt implements poller.Observer.
func (d *daemon) Attempt(tool, outcome string, took time.Duration) {
	d.metrics.attempt(tool, outcome, took)
}

// Stale implements poller.Observer.
func (d *daemon) Stale(tool string) { d.metrics.stale(tool) }

// Stepped implements poller.Observer.
func (d *daemon) Stepped(time.Duration) { d.metrics.stepped() }

// Settled implements poller.Observer: who waits for an answer looks again.
func (d *daemon) Settled(statusRef string) { d.api.Settled(statusRef) }

var _ poller.Observer = (*daemon)(nil)
