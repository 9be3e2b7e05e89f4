package main

import (
	"context"
	"errors"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/api"
)

func (a *app) reloadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Have the daemon read its config again, and wait for the result",
		Long: `Have the daemon read its config again, and wait for the result.

Exit status: 0 when the new config is in force, 78 when it is wrong (the daemon
goes on with the old one), 2 when no daemon answers. Name the daemon's socket with
--socket: a config that is wrong cannot say where it is.`,
		Args: cobra.NoArgs,
		RunE: a.does(a.reload),
	}
}

// errNobody: the command is for a daemon.
var errNobody = &coded{"NO_DAEMON", "no daemon takes connections at the socket: start it, or name the socket with --socket"}

func (a *app) reload(ctx context.Context, _ []string) error {
	path := a.flags.socket
	if path == "" {
		cfg, err := a.load()
		if err != nil {
			return err
		}
		path = cfg.Listen.Socket
	}
	l, _, err := viaSocket(path)
	if err != nil {
		return err
	}
	if l == nil {
		return errNobody
	}
	r, err := l.Reload(ctx)
	err = errors.Join(err, l.close())
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == "CONFIG_INVALID" {
		a.complain(p.Error())
		return exit(exitConfig)
	}
	if err != nil {
		return err
	}
	return a.show(r, func(t table.Writer) {
		rest := "all of it is in force"
		if len(r.Restart) > 0 {
			rest = "at the next start only: " + strings.Join(r.Restart, ", ")
		}
		t.AppendRow(table.Row{a.colour(green, "reloaded"), rest})
	})
}
