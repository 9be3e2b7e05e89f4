package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/systemd"
)

// reloadTime bounds one reload: the service manager waits for it.
const reloadTime = 20 * time.Second

// working is the status line of a daemon that has nothing to complain about.
const working = "accepting and working"

// reloaded is what became of one reload.
type reloaded struct {
	restart []string // sections that take effect at the next start only
	err     error
}

// reloads replaces the work by what the config says now, as often as asked, one
// reload after the other: who asks during one gets one that begins after it.
func (d *daemon) reloads(ctx context.Context) error {
	defer close(d.halted)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.o.Reload:
			d.reloadNow(ctx)
		case answer := <-d.asked:
			answer <- d.reloadNow(ctx)
		case l := <-d.looks:
			l.sure <- d.changed(ctx, l.file)
		}
	}
}

// Reload implements the API's: it answers when the reload is over. Its error is a
// *config.Problems where the config is wrong.
func (d *daemon) Reload(ctx context.Context) (restart []string, err error) {
	answer := make(chan reloaded, 1)
	select {
	case d.asked <- answer:
	case <-d.halted:
		return nil, ledger.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r := <-answer // bounded by reloadTime
	return r.restart, r.err
}

// reloadNow takes the config as it is.
func (d *daemon) reloadNow(ctx context.Context) reloaded {
	if d.o.Load == nil {
		return d.conclude(ctx, nil, nil)
	}
	text := d.fileText()
	cfg, err := d.o.Load()
	r := d.conclude(ctx, cfg, err)
	if r.err == nil {
		d.text = text
	}
	return r
}

// conclude ends one reload with a config, or with why there is none. The service
// manager is told that it is over in every case, or it would wait for that and then
// end the service; its status line keeps the error until a reload goes well.
func (d *daemon) conclude(ctx context.Context, cfg *config.Config, err error) (r reloaded) {
	d.tell(systemd.Reloading())
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, reloadTime)
	defer cancel()
	if r.err = err; err == nil && cfg != nil {
		r.restart, r.err = d.apply(limited, cfg)
	}
	d.metrics.reloaded(r.err, time.Since(began))
	status := working
	d.complaint = ""
	if r.err != nil {
		d.log.Error("config not reloaded: the old one stays", zap.Error(r.err))
		d.complaint = r.err.Error()
		status = "config not reloaded, the old one stays: " + firstProblem(r.err)
	}
	d.told.Store(&inForce{d.present, d.complaint})
	d.tell(systemd.Ready(status))
	return r
}

// inForce is a config and why there is no newer one.
type inForce struct {
	cfg     *config.Config
	problem string
}

func (d *daemon) inForce() (cfg *config.Config, problem string) {
	in := d.told.Load()
	return in.cfg, in.problem
}

// firstProblem fits a status line.
func firstProblem(err error) string {
	p, ok := errors.AsType[*config.Problems](err)
	if !ok || len(p.List) == 0 {
		return err.Error()
	}
	first, _, _ := strings.Cut((&config.Problems{List: p.List[:1]}).Error(), "\n")
	if more := len(p.List) - 1; more > 0 {
		first += fmt.Sprintf(" (and %d more)", more)
	}
	return first
}

// apply puts a config in force, or changes nothing. It logs one line.
func (d *daemon) apply(ctx context.Context, cfg *config.Config) (restart []string, err error) {
	work, closeWork, err := assemble(cfg, d.o.Tools)
	if err != nil {
		return nil, err
	}
	if err := d.poller.Swap(ctx, work); err != nil {
		closeWork()
		return nil, err
	}
	d.api.Swap(access(cfg))
	d.retention.Store(&cfg.Retention)
	d.hook.Store(work.Hook)
	d.close()
	d.close, d.present = closeWork, cfg
	tools := zap.Int("tools", len(cfg.Tools)+len(d.o.Tools))
	if restart = restarts(d.cfg, cfg); len(restart) > 0 {
		d.log.Warn("config reloaded", tools, zap.Strings("at_next_start_only", restart))
	} else {
		d.log.Info("config reloaded", tools)
	}
	return restart, nil
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
