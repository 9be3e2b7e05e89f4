package main

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// app is one run of the program.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            []string
	flags          flags
	breaks         breaks
	began          bool // a command was found and its flags understood
	silenced       silenced
}

// flags that every command has.
type flags struct {
	config, db, socket, output string
	noColor                    bool
}

// Main runs one command and returns its exit status. ctx ends a daemon; env is
// the environment as os.Environ gives it.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, env: env}
	root := a.root()
	root.SetArgs(slices.Concat([]string{}, args))
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	c, err := root.ExecuteContextC(ctx)
	if err != nil && !a.began {
		err = misused(c, err)
	}
	return a.end(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "outboxd",
		Short: "Side effects that survive crashes, on one host, in one SQLite file",
		Long: `Side effects that survive crashes, on one host, in one SQLite file.

Exit status: 0 verified success, 1 an expected "no", 2 it could not be done (one
JSON line on stderr says why), 3 a drain was cut off, 78 the config is wrong.`,
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.NoArgs,
		RunE: a.parent,
	}
	root.AddCommand(a.dispatchCommand(), a.approveCommand(), a.verifyCommand())

	f := root.PersistentFlags()
	f.StringVar(&a.flags.config, "config", "", "config `FILE` (default /etc/outboxd/outboxd.yaml, else ./outboxd.yaml)")
	f.StringVar(&a.flags.db, "db", "", "database `FILE`, in the place of the config's")
	f.StringVar(&a.flags.socket, "socket", "", "`PATH` of the daemon's socket, in the place of the config's")
	f.StringVarP(&a.flags.output, "output", "o", "", "`table|json` (default table on a terminal, else json)")
	f.BoolVar(&a.flags.noColor, "no-color", false, "no colour, as with NO_COLOR in the environment")
	root.AddCommand(a.runCommand(), a.demoCommand(), a.submitCommand(), a.statusCommand(), a.reconcileCommand(), a.cancelCommand(), a.listCommand(), a.deadCommand(), a.backoffCommand(),
		a.refusedCommand(), a.toolCommand(), a.sessionCommand(), a.auditCommand(), a.chaosCommand(), a.configCommand(), a.dbCommand(), a.versionCommand())
	return root
}

// does makes a function the body of a command.
func (a *app) does(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		a.began = true
		if o := a.flags.output; o != "" && o != "table" && o != "json" {
			return &usageError{"-o takes table or json"}
		}
		return fn(c.Context(), args)
	}
}

// parent is the body of a command that only has others below it.
func (a *app) parent(c *cobra.Command, _ []string) error { return commandNeeded(c) }

// variable is the value of a variable of the environment; "" where it is not set.
func (a *app) variable(name string) string {
	for _, entry := range slices.Backward(a.env) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
