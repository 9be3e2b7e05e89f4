package main

import (
	"context"
	"errors"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/config"
)

// shownConfig is the answer of config show.
type shownConfig struct {
	File     string         `json:"file"`
	Settings []shownSetting `json:"settings"`
}

type shownSetting struct {
	Path   string `json:"path"`
	Value  string `json:"value"`
	Origin string `json:"origin,omitzero"`
}

func (a *app) configShowCommand() *cobra.Command {
	var origin, running bool
	c := &cobra.Command{
		Use:   "show",
		Short: "Show what the config comes to, defaults and environment included",
		Long: `Show what the config comes to, defaults and environment included.

With --origin each value says where it comes from: the file with line and column, a
variable of the environment, a flag, the default, or the setting that it follows
from. Nothing of headers, variables, arguments and statements is shown, and of a URL
only scheme and host. A daemon that runs may still have an older file in force:
--running asks it what that is, and why it did not take a newer one.`,
		Args: cobra.NoArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			switch {
			case origin && running:
				return &usageError{"config show takes --origin or --running"}
			case running:
				return a.showRunning(ctx)
			}
			return a.showConfig(origin)
		}),
	}
	c.Flags().BoolVar(&running, "running", false, "show what the daemon has in force")
	c.Flags().BoolVar(&origin, "origin", false, "say where each value comes from")
	return c
}

func (a *app) showConfig(origin bool) error {
	name, data := "(no config file)", []byte("{}")
	if path := a.configPath(); path != "" {
		read, err := config.Read(path)
		if err != nil {
			return problem(path, "", "a file that cannot be read: "+withoutPath(err), "a YAML file that this user may read")
		}
		name, data = path, read
	}
	list, err := config.Settings(name, data, a.env)
	if err != nil {
		return err
	}
	list = flagged(flagged(list, "database.path", a.flags.db, "--db"), "listen.socket", a.flags.socket, "--socket")
	shown := shownConfig{File: name}
	for _, s := range list {
		if !origin {
			s.Origin = ""
		}
		shown.Settings = append(shown.Settings, shownSetting(s))
	}
	return a.show(shown, func(t table.Writer) {
		for _, s := range shown.Settings {
			t.AppendRow(table.Row{cell(s.Path), cell(s.Value), cell(s.Origin)})
		}
	})
}

func (a *app) showRunning(ctx context.Context) error {
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
	in, err := l.Config(ctx)
	if err = errors.Join(err, l.close()); err != nil {
		return err
	}
	if in.Problem != "" && a.inTables() {
		a.complain("the last reload failed, the file says something else: " + in.Problem)
	}
	return a.show(in, func(t table.Writer) {
		for _, s := range in.Settings {
			t.AppendRow(table.Row{cell(s.Path), cell(s.Value)})
		}
	})
}

// flagged puts what a flag says in the place of what the config says.
func flagged(list []config.Setting, path, value, flag string) []config.Setting {
	if value == "" {
		return list
	}
	said := config.Setting{Path: path, Value: value, Origin: "flag " + flag}
	for i, s := range list {
		if s.Path == path {
			list[i] = said
			return list
		}
	}
	return append(list, said)
}

func (a *app) configSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print a JSON Schema of the config file, for editors",
		Args:  cobra.NoArgs,
		RunE: a.does(func(context.Context, []string) error {
			return a.write(strings.TrimSuffix(string(config.Schema()), "\n"))
		}),
	}
}
