package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/lease"
)

// gcPercent lets a daemon's heap, which is small, grow further between two
// collections than Go's 100: that saves 5 % of its processor time under load.
const gcPercent = 400

func (a *app) runCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "run",
		Short: "Be the daemon: accept, work, answer on the socket",
		Long: `Be the daemon: accept, work, answer on the socket.

SIGTERM and SIGINT drain: claiming ends, what runs is waited for until
worker.drain_timeout. A second one waits no longer. SIGHUP reads the config again;
so does a change of its file, unless that looks half written (see config reload).

Exit status: 0 after a clean drain, 3 when work in flight was cut off (it is
recorded), 2 when it could not run (ALREADY_RUNNING names who holds the database),
78 when the config is wrong.`,
		Args: cobra.NoArgs,
		RunE: a.does(a.run),
	}
	a.breaks.declare(c)
	return c
}

func (a *app) run(ctx context.Context, _ []string) error {
	cfg, err := a.loadRunnable()
	if err != nil {
		return err
	}
	if st, err := os.Stat(filepath.Dir(cfg.Database.Path)); gone(err) || (err == nil && !st.IsDir()) {
		return errNoDirectory
	}
	log, err := a.logger(cfg.Log)
	if err != nil {
		return err
	}
	for _, name := range config.Strangers(a.env) {
		log.Warn("variable of the environment is no setting", zap.String("variable", name))
	}
	if a.variable("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	}
	armed, err := a.breaks.plan(func(plan string) { log.Error(armedText, zap.String("plan", plan)) })
	if err != nil {
		return err
	}
	ctx, hurry, end := terminated(ctx)
	defer end()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	err = daemon.Run(ctx, cfg, daemon.Options{
		Load:   func() (*config.Config, error) { return a.loadRunnable() },
		Reload: reload, File: a.configPath(), Hurry: hurry, Version: version(), Silenced: a.silenced.all.Load,
		Armed: armed, ForChaos: a.breaks.create,
	}, log)
	if _, held := errors.AsType[*lease.HeldError](err); err != nil && !held && !errors.Is(err, daemon.ErrCutOff) {
		log.Info("daemon ended", zap.Error(err)) // all of it; the error itself is the last word, on the line that follows
	}
	return err
}

// terminated returns a context that ends with the first SIGTERM or SIGINT, and a
// channel that gets those after it.
func terminated(parent context.Context) (ctx context.Context, hurry <-chan os.Signal, end func()) {
	ctx, cancel := context.WithCancel(parent)
	signals, more := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case s := <-signals:
				if ctx.Err() == nil {
					cancel()
					continue
				}
				select {
				case more <- s:
				default: // it is in a hurry already
				}
			}
		}
	}()
	return ctx, more, func() {
		signal.Stop(signals)
		close(done)
		<-stopped
		cancel()
	}
}
