package main

import (
	"context"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
)

func (a *app) releaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "release",
		Short: "Let a database that was put back from an older copy go on",
		Long: `Let a database that was put back from an older copy go on.

Such a database is held: it accepts, but nothing is sent, asked or reviewed (HELD).
Whatever stood in the copy may have been sent since the copy was made. So idempotent
operations are sent again with their keys, queryable ones are asked about first, and
everything else that was not over, or was dead, becomes unknown and waits for a
person, with the reason "restored". Operations that were accepted after the copy was
made and are not in it are lost, unless who submitted them does so again.`,
		Args: cobra.NoArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.with(ctx, controls, func(l *link) error {
				r, err := l.Release(ctx)
				if err != nil {
					return err
				}
				return a.show(r, func(t table.Writer) {
					if !r.Released {
						t.AppendRow(table.Row{"not held", ""})
						return
					}
					t.AppendRow(table.Row{"sent again", r.Resumed})
					t.AppendRow(table.Row{"asked about", r.Asked})
					t.AppendRow(table.Row{"waiting for a person", r.Held})
				})
			})
		}),
	}
}
