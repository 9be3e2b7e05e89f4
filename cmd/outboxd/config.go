package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/handler"
)

// defaultConfigs are looked for in this order where no --config is given.
var defaultConfigs = [...]string{"/etc/outboxd/outboxd.yaml", "./outboxd.yaml"}

// configPath is the config file to read; "" where there is none, which most
// commands do not mind.
func (a *app) configPath() string {
	if a.flags.config != "" {
		return a.flags.config
	}
	for _, path := range defaultConfigs {
		if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return path
		}
	}
	return ""
}

// load reads the config afresh, with what the flags say in its place. Without a
// file it is the defaults and the environment.
func (a *app) load() (*config.Config, error) {
	path := a.configPath()
	cfg, err := a.read(path)
	if err != nil {
		return nil, err
	}
	if a.flags.db != "" {
		cfg.Database.Path = a.flags.db
	}
	if a.flags.socket != "" {
		cfg.Listen.Socket = a.flags.socket
	}
	return cfg, nil
}

func (a *app) read(path string) (*config.Config, error) {
	if path == "" {
		return config.Parse("(no config file)", []byte("{}"), a.env)
	}
	cfg, err := config.Load(path, a.env)
	if _, told := errors.AsType[*config.Problems](err); err == nil || told {
		return cfg, err
	}
	if a.flags.config == "" && (a.flags.db != "" || a.flags.socket != "") && errors.Is(err, fs.ErrPermission) {
		return config.Parse("(no config file)", []byte("{}"), a.env) // it is not for this user, who has said enough
	}
	return nil, problem(path, "", "a file that cannot be read: "+withoutPath(err), "a YAML file that this user may read")
}

func problem(file, path, found, allowed string) error {
	return &config.Problems{List: []config.Problem{{File: file, Path: path, Found: found, Allowed: allowed}}}
}

// loadRunnable is load for the daemon: everything that would keep it from
// starting is a problem.
func (a *app) loadRunnable() (*config.Config, error) {
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	file := a.configPath()
	var list []config.Problem
	refuse := func(path, found, allowed string) {
		list = append(list, config.Problem{File: file, Path: path, Found: found, Allowed: allowed})
	}
	if cfg.Database.Path == "" {
		refuse("database.path", "nothing", "the path of the database file, here or with --db")
	}
	if cfg.Listen.Socket == "" {
		refuse("listen.socket", "nothing", "the path of the socket to answer on, here or with --socket")
	}
	if _, err := daemon.Group(cfg); err != nil {
		refuse("database.application_group", "a group that this host does not have", "the name, or the number, of a group of this host; not root's")
	}
	for i, t := range cfg.Tools {
		pair, err := handler.Build(t)
		if err != nil {
			refuse(fmt.Sprintf("tools[%d]", i), "what cannot be used: "+err.Error(), "files that exist and that this user may read, and values that fit together")
			continue
		}
		pair.Close()
	}
	if len(list) == 0 {
		if _, err := contract.NewRegistry(cfg.Tools); err != nil {
			refuse("tools", "what cannot be used: "+err.Error(), "tools that fit together")
		}
	}
	if len(list) > 0 {
		return nil, &config.Problems{List: list}
	}
	return cfg, nil
}

func (a *app) configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Look at the config", Args: cobra.NoArgs, RunE: a.parent}
	c.AddCommand(&cobra.Command{
		Use:   "check",
		Short: "Tell every problem of the config (exit 78), or that there is none (exit 0)",
		Args:  cobra.NoArgs,
		RunE:  a.does(a.checkConfig),
	}, a.configShowCommand(), a.configSchemaCommand(), a.reloadCommand())
	return c
}

func (a *app) checkConfig(context.Context, []string) error {
	path := a.configPath()
	if path == "" {
		return problem("", "", "no config file", fmt.Sprintf("%s, %s, or a file named with --config", defaultConfigs[0], defaultConfigs[1]))
	}
	cfg, err := a.loadRunnable()
	if problems, told := errors.AsType[*config.Problems](err); told && a.flags.output == "json" {
		if err := a.show(wrong(path, problems), nil); err != nil {
			return err
		}
		return exit(exitConfig)
	}
	if err != nil {
		return err
	}
	ok := struct {
		File  string `json:"file"`
		OK    bool   `json:"ok"`
		Tools int    `json:"tools"`
	}{path, true, len(cfg.Tools)}
	return a.show(ok, func(t table.Writer) {
		t.AppendRow(table.Row{cell(path), a.colour(green, "ok"), fmt.Sprintf("%d tools", len(cfg.Tools))})
	})
}

// wrongConfig is what -o json prints in the place of the lines on stderr.
type wrongConfig struct {
	File     string          `json:"file"`
	OK       bool            `json:"ok"`
	Problems []configProblem `json:"problems"`
}

type configProblem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitzero"`
	Column  int    `json:"column,omitzero"`
	Path    string `json:"path"`
	Found   string `json:"found"`
	Allowed string `json:"allowed"`
}

func wrong(file string, problems *config.Problems) wrongConfig {
	w := wrongConfig{File: file}
	for _, p := range problems.List {
		w.Problems = append(w.Problems, configProblem(p))
	}
	return w
}

// sameFile reports whether two paths name one file, which need not exist.
func sameFile(one, other string) bool {
	if one == other {
		return true
	}
	a, errA := os.Stat(one)
	b, errB := os.Stat(other)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// errNoDirectory: even a command that creates the file does not create that.
var errNoDirectory = &coded{"DATABASE_NOT_FOUND", "the directory of the database does not exist, or is none"}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) }
