package main

import (
	"context"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/api"
)

func (a *app) toolCommand() *cobra.Command {
	c := &cobra.Command{Use: "tool", Short: "Look at tools, pause and resume them", Args: cobra.NoArgs, RunE: a.parent}
	c.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "List the tools that are configured or have a past in the database",
		Args:  cobra.NoArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.with(ctx, looks, func(l *link) error {
				list, err := l.Tools(ctx)
				if err != nil {
					return err
				}
				return a.show(list, func(t table.Writer) { a.health(t, list) })
			})
		}),
	})
	var reason string
	pause := &cobra.Command{
		Use:   "pause T",
		Short: "Stop attempts of a tool, also over restarts; what runs goes on",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: a.completeTool,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.control(ctx, func(l *link) (api.Tool, error) { return l.Pause(ctx, args[0], reason) })
		}),
	}
	pause.Flags().StringVar(&reason, "reason", "", "why, for who looks at it later (default: your uid)")
	c.AddCommand(pause, &cobra.Command{
		Use:   "resume T",
		Short: "Let a paused tool go on",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: a.completeTool,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.control(ctx, func(l *link) (api.Tool, error) { return l.Resume(ctx, args[0]) })
		}),
	})
	return c
}

func (a *app) control(ctx context.Context, do func(*link) (api.Tool, error)) error {
	return a.with(ctx, controls, func(l *link) error {
		tool, err := do(l)
		if err != nil {
			return err
		}
		return a.show(tool, func(t table.Writer) { a.health(t, api.Tools{Tools: []api.Tool{tool}}) })
	})
}
