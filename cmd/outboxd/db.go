package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/ledger"
)

func (a *app) dbCommand() *cobra.Command {
	c := &cobra.Command{Use: "db", Short: "Take care of the database", Args: cobra.NoArgs, RunE: a.parent}
	c.AddCommand(a.initCommand(), a.migrateCommand(), a.backupCommand(), a.restoreCommand(), a.releaseCommand(), a.purgeCommand(), a.doctorCommand())
	return c
}

// dbConfig is the config of a command that works on the file itself.
func (a *app) dbConfig() (*config.Config, error) {
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	if cfg.Database.Path == "" {
		return nil, &usageError{"no database is named: use --config or --db"}
	}
	if st, err := os.Stat(filepath.Dir(cfg.Database.Path)); gone(err) || (err == nil && !st.IsDir()) {
		return nil, errNoDirectory
	}
	return cfg, nil
}

// made is what init and migrate print.
type made struct {
	Created bool  `json:"created"`
	From    int64 `json:"from_version"` // 0: there were no outbox tables
	To      int64 `json:"schema_version"`
}

func (a *app) showMade(m daemon.Made, word string) error {
	return a.show(made(m), func(t table.Writer) {
		if m.Created {
			word = "created"
		}
		t.AppendRow(table.Row{a.colour(green, word), "schema version " + strconv.FormatInt(m.To, 10)})
	})
}

func (a *app) initCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init",
		Short: "Create the database file, mode 0600, or the outbox tables in a file that is there",
		Long: `Create the database file, mode 0600 (0660 with database.application_group), or the
outbox tables in an application's own database that is there and is in WAL mode.
Where they are there already nothing is done. Run it as the user that the daemon
runs as; the first start of the daemon does the same.`,
		Args: cobra.NoArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			cfg, err := a.dbConfig()
			if err != nil {
				return err
			}
			m, err := daemon.Init(ctx, cfg, daemon.Options{})
			if err != nil {
				return err
			}
			return a.showMade(m, "there already")
		}),
	}
}

func (a *app) migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database of an older outboxd up to date, without starting the daemon",
		Long: `Bring the database of an older outboxd up to date, without starting the daemon.

The daemon does the same when it starts. No other command ever does it: they answer
SCHEMA_OLDER. Each step is one transaction with its version, so that a kill leaves
the file before or after a step, and the next try goes on from there. There is no
way back: make a backup first (outboxd db backup of the older version).`,
		Args: cobra.NoArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			cfg, err := a.dbConfig()
			if err != nil {
				return err
			}
			m, err := daemon.Migrate(ctx, cfg, daemon.Options{}, func(from, to int64) {
				a.say("upgrading from version " + strconv.FormatInt(from, 10) + " (the last is " + strconv.FormatInt(to, 10) + ")")
			})
			if err != nil {
				return err
			}
			return a.showMade(m, "up to date")
		}),
	}
}

func (a *app) backupCommand() *cobra.Command {
	var r api.BackupRequest
	c := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the database while it is in use",
		Long: `Copy the database into FILE while it is in use. Everything that was accepted before
the command began is in the copy, which is checked, synced and mode 0600 before it
gets its name. Where a daemon answers, it writes the file, as its own user.

Copying the file with other tools loses what stands in its -wal.`,
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) (err error) {
			if r.File, err = filepath.Abs(args[0]); err != nil {
				return err
			}
			return a.with(ctx, looks, func(l *link) error {
				b, err := l.Backup(ctx, r)
				if err != nil {
					return err
				}
				return a.show(b, func(t table.Writer) { a.backup(t, b) })
			})
		}),
	}
	c.Flags().BoolVar(&r.ForeignTables, "foreign-tables", false, "the file is an application's own: its tables are copied too")
	c.Flags().BoolVar(&r.Replace, "replace", false, "an earlier backup of that name is replaced")
	return c
}

func (a *app) backup(t table.Writer, b api.Backup) {
	t.AppendRow(table.Row{"operations", b.Operations})
	t.AppendRow(table.Row{"bytes", b.Bytes})
	t.AppendRow(table.Row{"schema version", b.SchemaVersion})
	t.AppendRow(table.Row{"lineage", b.Lineage + ", generation " + strconv.FormatInt(b.Generation, 10)})
	if b.ForeignTables > 0 {
		t.AppendRow(table.Row{"tables of the application", b.ForeignTables})
	}
}

// restored is what restore prints.
type restored struct {
	api.Backup
	Replaced string `json:"replaced,omitzero"` // name of the file that was there, beside the database
}

func (a *app) restoreCommand() *cobra.Command {
	var o ledger.CopyOptions
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup in the place of the database; the daemon and all applications are stopped",
		Long: `Put a backup in the place of the database, in one step, once it was copied and
checked. The daemon and every application that uses the file must be stopped: a file
that is open anywhere is refused. The old file is kept beside it, under the name that
is printed; remove it when it is no longer wanted.

What was live in the backup may have been sent since it was made: the restored file
accepts, but nothing is sent, asked or reviewed until "outboxd db release".`,
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			cfg, err := a.dbConfig()
			if err != nil {
				return err
			}
			from, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if o.Armed, err = a.breaks.plan(func(plan string) { a.say(armedText + ": " + plan) }); err != nil {
				return err
			}
			r, err := daemon.Restore(ctx, cfg, daemon.Options{}, from, o)
			if err != nil {
				return err
			}
			out := restored{api.BackupOf(r.Copied), r.Kept}
			return a.show(out, func(t table.Writer) {
				a.backup(t, out.Backup)
				optional(t, "the old file", out.Replaced)
			})
		}),
	}
	c.Flags().BoolVar(&o.Foreign, "foreign-tables", false, "the backup holds an application's own tables, which are put back too")
	a.breaks.declareArm(c)
	return c
}

func (a *app) purgeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "purge",
		Short: "Remove now what is older than the retention",
		Long: `Remove now what is older than the retention of the config, as the daemon does every
retention.every: operations that were delivered or discarded, each of which leaves
its key in a tombstone; refused rows; old tombstones. What waits, runs, is unknown or
dead is never removed. "kept" counts old rows that foreign keys or triggers of the
application do not let go.`,
		Args: cobra.NoArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.with(ctx, controls, func(l *link) error {
				p, err := l.Purge(ctx)
				if err != nil {
					return err
				}
				return a.show(p, func(t table.Writer) {
					t.AppendHeader(table.Row{"operations", "refused", "tombstones", "kept"})
					t.AppendRow(table.Row{p.Operations, p.Refused, p.Tombstones, p.Kept})
				})
			})
		}),
	}
}
