package main

import (
	"context"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/daemon"
)

// checkup is what doctor prints.
type checkup struct {
	OK     bool             `json:"ok"`
	Checks []daemon.Finding `json:"checks"`
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the database and what is around it, and say what to do",
		Long: `Check the database and what is around it, one line for each check: ok, warn or fail,
what was found and what to do. Nothing is changed. Run it as the user that the daemon
runs as: another one cannot look into the file.

Looked at are owner, group and mode of the file, its -wal and -shm, its lock and its
directory; the application group; who has the file open and who keeps its log from
being reused; journal mode and schema version; triggers and references of the
application; file system and space; the clock; the socket; the unit of systemd; and
what backups and restores left.

Exit status: 0 when nothing fails, 1 when something does.`,
		Args: cobra.NoArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if cfg.Database.Path == "" {
				return &usageError{"no database is named: use --config or --db"}
			}
			c := checkup{Checks: daemon.Doctor(ctx, cfg, daemon.Options{})}
			c.OK = !slices.ContainsFunc(c.Checks, func(f daemon.Finding) bool { return f.Level == daemon.Fail })
			if err := a.show(c, func(t table.Writer) { a.checks(t, c.Checks) }); err != nil || c.OK {
				return err
			}
			return exit(exitNo)
		}),
	}
}

func (a *app) checks(t table.Writer, list []daemon.Finding) {
	for _, f := range list {
		level := string(f.Level)
		if f.Level == daemon.Fine {
			level = a.colour(green, level)
		} else {
			level = a.colour(yellow, level)
		}
		what := cell(f.What)
		if f.Do != "" {
			what += " - " + cell(f.Do)
		}
		t.AppendRow(table.Row{level, f.Check, what})
	}
}
