package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/guptarohit/asciigraph"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/contract"
)

func (a *app) backoffCommand() *cobra.Command {
	c := &cobra.Command{Use: "backoff", Short: "Look at when tools are tried again, and try another policy on the past", Args: cobra.NoArgs, RunE: a.parent}
	c.AddCommand(a.backoffShowCommand(), a.backoffSimulateCommand())
	return c
}

func (a *app) backoffShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show TOOL",
		Short: "Show a tool's delays, in numbers and as a plot",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: a.completeTool,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.with(ctx, looks, func(l *link) error {
				b, err := l.Backoff(ctx, args[0])
				if err != nil {
					return err
				}
				return a.curve(b)
			})
		}),
	}
}

func (a *app) curve(b api.Backoff) error {
	if err := a.titled(b.Tool, b.Policy); err != nil {
		return err
	}
	err := a.show(b, func(t table.Writer) {
		t.AppendHeader(table.Row{"failures", "waits at least", "at most", "next after at least", "at most"})
		for _, d := range b.Delays {
			t.AppendRow(table.Row{d.Failures, ms(d.Least), ms(d.Most), ms(d.ByLeast), ms(d.ByMost)})
		}
	})
	if err != nil || !a.inTables() || len(b.Delays) < 2 {
		return err
	}
	least, most := make([]float64, len(b.Delays)), make([]float64, len(b.Delays))
	for i, d := range b.Delays {
		least[i], most[i] = float64(d.Least)/1000, float64(d.Most)/1000
	}
	return a.plot("seconds to wait after the n-th failure: at least, at most", least, most)
}

// titled names a policy above its table.
func (a *app) titled(tool string, p api.RetryPolicy) error {
	if !a.inTables() {
		return nil
	}
	return a.write(cell(tool) + ": " + policy(p) + "\n")
}

// plot draws series below each other in one picture.
func (a *app) plot(caption string, series ...[]float64) error {
	const height, width = 10, 70
	picture := asciigraph.PlotMany(series, asciigraph.Height(height), asciigraph.Width(width), asciigraph.LowerBound(0),
		asciigraph.Precision(1))
	return a.write("\n" + picture + "\n" + strings.Repeat(" ", 8) + caption)
}

func ms(n int64) string { return (time.Duration(n) * time.Millisecond).String() }

func policy(p api.RetryPolicy) string {
	shape := fmt.Sprintf("%s from %s by %g", p.Backoff, p.Initial, p.Factor)
	switch p.Backoff {
	case "constant":
		shape = "constant " + p.Initial
	case "list":
		shape = "list " + strings.Join(p.Delays, ", ")
	}
	return fmt.Sprintf("%s, max %s, jitter %s, %d attempts, max age %s", shape, p.Max, p.Jitter, p.MaxAttempts, p.MaxAge)
}

func (a *app) backoffSimulateCommand() *cobra.Command {
	var p api.RetryPolicy
	var file, since string
	c := &cobra.Command{
		Use:   "simulate TOOL",
		Short: "Replay a tool's recorded attempts under another policy",
		Long: `Replay a tool's recorded attempts under another policy: what would have been
delivered when, what would have been given up, and the load on the downstream.

The policy is that of the tool in --config-new FILE, else the present one, with
what the other flags change. Nothing is sent and nothing is changed. The delays are
those that the daemon would choose. The downstream is taken to have been as the
attempt recorded last before each moment found it; beyond the last recorded attempt
nothing is known, and a round that goes on until there stays open.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTool,
		RunE: a.does(func(ctx context.Context, args []string) (err error) {
			body := api.SimulateBody{Retry: p}
			if body.Retry, err = a.newPolicy(file, args[0], p); err != nil {
				return err
			}
			if since != "" {
				if body.Since, err = time.Parse(time.RFC3339, since); err != nil {
					return &contract.InputError{Path: "since", What: "is no instant", Allowed: "an instant as RFC 3339 has it: 2030-01-31T12:00:00Z"}
				}
			}
			return a.with(ctx, looks, func(l *link) error {
				sim, err := l.Simulate(ctx, args[0], body)
				if err != nil {
					return err
				}
				return a.simulation(sim)
			})
		}),
	}
	f := c.Flags()
	f.StringVar(&file, "config-new", "", "a config `FILE` that has the tool's new policy")
	f.StringVar(&since, "since", "", "only operations accepted at this `TIME` (RFC 3339) or later (default: the last 100000)")
	f.StringVar(&p.Backoff, "backoff", "", "`exponential|constant|list`")
	f.StringVar(&p.Initial, "initial", "", "the first `DELAY`")
	f.Float64Var(&p.Factor, "factor", 0, "by which exponential grows")
	f.StringVar(&p.Max, "max", "", "the longest `DELAY`")
	f.StringSliceVar(&p.Delays, "delays", nil, "`DELAY,...` of backoff list")
	f.StringVar(&p.Jitter, "jitter", "", "`full|equal|none`")
	f.IntVar(&p.MaxAttempts, "max-attempts", 0, "failed attempts in a round")
	f.StringVar(&p.MaxAge, "max-age", "", "after this `TIME`, what has failed is given up")
	return c
}

// newPolicy is the tool's policy in a config file, with what p says changed.
func (a *app) newPolicy(file, tool string, p api.RetryPolicy) (api.RetryPolicy, error) {
	if file == "" {
		return p, nil
	}
	cfg, err := a.read(file)
	if err != nil {
		return p, err
	}
	for _, t := range cfg.Tools {
		if t.Name == tool {
			return p.Or(api.PolicyOf(t.Retry)), nil
		}
	}
	return p, &coded{"TOOL_UNKNOWN", "the file that --config-new names has no such tool"}
}

func (a *app) simulation(sim api.Simulation) error {
	if err := a.titled(sim.Tool, sim.Policy); err != nil {
		return err
	}
	err := a.show(sim, func(t table.Writer) {
		t.AppendHeader(table.Row{fmt.Sprintf("of %d rounds", sim.Rounds), "recorded", "simulated"})
		r, s := sim.Recorded, sim.Simulated
		t.AppendRows([]table.Row{{"delivered", r.Delivered, s.Delivered}, {"given up", r.GivenUp, s.GivenUp},
			{"rejected", r.Rejected, s.Rejected}, {"unknown", r.Unknown, s.Unknown}, {"open at the end", r.Open, s.Open},
			{"attempts", r.Attempts, s.Attempts}, {"attempts in the busiest second", r.Peak, s.Peak},
			{"half delivered within", ms(r.HalfBy), ms(s.HalfBy)}, {"95 % delivered within", ms(r.MostBy), ms(s.MostBy)},
			{"last delivered after", ms(r.LastBy), ms(s.LastBy)}})
	})
	if err != nil || !a.inTables() || len(sim.Simulated.Load) < 2 {
		return err
	}
	bucket := ms(sim.BucketMS)
	if err := a.plot("delivered so far, each "+bucket+": simulated", numbers(sim.Simulated.Done)); err != nil {
		return err
	}
	return a.plot("attempts in each "+bucket+": simulated", numbers(sim.Simulated.Load))
}

func numbers(list []int) []float64 {
	out := make([]float64, len(list))
	for i, n := range list {
		out[i] = float64(n)
	}
	return out
}
