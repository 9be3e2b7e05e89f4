package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/chaos"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/handler"
)

// matrix is what the flags of chaos say.
type matrix struct {
	tool, args, tenant, subject, witness string
	wait                                 time.Duration
}

func (a *app) chaosCommand() *cobra.Command {
	var m matrix
	c := &cobra.Command{
		Use:   "chaos --tool T",
		Short: "Kill a daemon at every point, and see what your downstream made of it",
		Long: `Kill a daemon at every point that an operation passes, on a scratch database each
time, and see what the downstream made of it. The effects are REAL: one operation of
the tool is sent for each point, with the given arguments and a key of its own that
begins with "chaos-". Point the config at a test downstream.

The downstream is asked with --witness, a program that is called with the key that
the downstream sees as its only argument and prints how often that key took effect;
else with the tool's status query, which tells only whether it did.

Exit status 0: after every kill the downstream has one effect, or the operation waits
for a person as its class demands; 1: something else happened, and it is said what.`,
		Args: cobra.NoArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error { return a.chaos(ctx, m) }),
	}
	f := c.Flags()
	f.StringVar(&m.tool, "tool", "", "name of the tool")
	f.StringVar(&m.args, "args", "{}", "arguments of each operation: `JSON|@FILE|-`")
	f.StringVar(&m.tenant, "tenant", "chaos", "for whom")
	f.StringVar(&m.subject, "subject", "chaos", "for whom, within the tenant")
	f.StringVar(&m.witness, "witness", "", "`PROGRAM` that prints how often the key that it is given took effect")
	f.DurationVar(&m.wait, "wait", time.Minute, "how long one operation may take until it is settled")
	return c
}

// matrixResult is what chaos prints.
type matrixResult struct {
	Tool   string      `json:"tool"`
	Effect string      `json:"effect"`
	OK     bool        `json:"ok"`
	Asked  string      `json:"asked"` // witness, query or nobody
	Points []chaos.Row `json:"points"`
}

func (a *app) chaos(ctx context.Context, in matrix) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(cfg.Tools, func(t config.Tool) bool { return t.Name == in.tool })
	if i < 0 {
		return &coded{"TOOL_UNKNOWN", "no such tool is configured: name one with --tool"}
	}
	tool := cfg.Tools[i]
	args, err := a.input("--args", in.args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "obxc")
	if err != nil {
		return fmt.Errorf("make a scratch directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a scratch: at worst it stays
	m, asked, done, err := a.matrix(ctx, in, tool, args)
	if err != nil {
		return err
	}
	defer done()
	m.Dir = dir
	result := matrixResult{Tool: tool.Name, Effect: tool.Effect, Asked: asked, OK: true}
	result.Points, err = m.Run(ctx, func(r chaos.Row) {
		result.OK = result.OK && r.Problem == ""
		if r.Problem != "" && a.inTables() {
			a.say(r.Problem)
		}
	})
	if err != nil {
		return chaosEnd(err)
	}
	if err := a.show(result, func(t table.Writer) { a.matrixRows(t, result) }); err != nil || result.OK {
		return err
	}
	return exit(exitNo)
}

func chaosEnd(err error) error {
	if _, ok := errors.AsType[*api.Problem](err); ok {
		return err
	}
	return &coded{"CHAOS_FAILED", err.Error()}
}

func (a *app) matrixRows(t table.Writer, r matrixResult) {
	t.AppendHeader(table.Row{"killed at", "status", "attempts", "effects", ""})
	for _, p := range r.Points {
		effects, word := "?", a.colour(green, "ok")
		if p.Effects != nil {
			effects = strconv.Itoa(*p.Effects)
		}
		switch {
		case !p.Killed:
			word, effects = "not passed", ""
		case p.Problem != "":
			word = p.Problem
		}
		t.AppendRow(table.Row{p.Point, strings.TrimSpace(p.Status + " " + p.Reason), p.Attempts, effects, word})
	}
}

// matrix is what the flags and the tool say. done closes what asks the downstream.
func (a *app) matrix(ctx context.Context, in matrix, tool config.Tool, args jsontext.Value) (m chaos.Matrix, asked string, done func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return m, "", nil, fmt.Errorf("find this program: %w", err)
	}
	scope := contract.Scope{Tenant: in.tenant, Subject: in.subject, Tool: tool.Name}
	m = chaos.Matrix{
		Daemon: chaos.Daemon{Argv: []string{self}, Config: a.configPath()},
		Case: api.Case{Principal: &api.Principal{Tenant: in.tenant, Subject: in.subject},
			Call: api.CaseCall{Tool: tool.Name, Arguments: args}},
		Wait: in.wait,
		WireKey: func(key string) string {
			scope.Key = key
			return contract.WireKey(contract.WireMode(tool.WireKey), scope)
		},
	}
	if in.witness != "" {
		m.Saw = func(key string) (chaos.Saw, error) { return witnessed(ctx, in.witness, key) }
		return m, "witness", func() {}, nil
	}
	if tool.Query == nil {
		m.Saw = func(string) (chaos.Saw, error) { return chaos.Saw{}, nil }
		return m, "nobody", func() {}, nil
	}
	pair, err := handler.BuildAsker(tool.Name, *tool.Query)
	if err != nil {
		return m, "", nil, err
	}
	m.Saw = func(key string) (chaos.Saw, error) { return queried(ctx, pair.Asker, tool, key), nil }
	return m, "query", pair.Close, nil
}

// witnessed asks the user's own program.
func witnessed(ctx context.Context, program, key string) (chaos.Saw, error) {
	out, err := exec.CommandContext(ctx, program, key).Output()
	if err != nil {
		return chaos.Saw{}, fmt.Errorf("the witness failed: %w", err)
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(out)))
	if err != nil || n < 0 {
		return chaos.Saw{}, errors.New("the witness did not print a number")
	}
	return chaos.Saw{Known: true, Effects: n}, nil
}

// queried asks the tool's status query, which tells only whether.
func queried(ctx context.Context, asker handler.Asker, tool config.Tool, key string) chaos.Saw {
	ctx, cancel := context.WithTimeout(ctx, tool.Query.Timeout)
	defer cancel()
	switch asker.Ask(ctx, handler.Call{Purpose: handler.Query, Tool: tool.Name, WireKey: key}).Found {
	case handler.Applied:
		return chaos.Saw{Known: true, Only: true, Effects: 1}
	case handler.NotApplied:
		return chaos.Saw{Known: true, Only: true}
	}
	return chaos.Saw{}
}
