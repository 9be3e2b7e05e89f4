package main

import (
	"context"
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/audit"
)

func (a *app) auditCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "audit",
		Short: "Recompute everything that the database claims (exit 1: something is wrong)",
		Args:  cobra.NoArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.with(ctx, looks, func(l *link) error {
				report, err := l.Audit(ctx)
				if err != nil {
					return err
				}
				if err := a.show(report, func(t table.Writer) { a.report(t, report) }); err != nil {
					return err
				}
				if !report.Clean() {
					return exit(exitNo)
				}
				return nil
			})
		}),
	}
}

func (a *app) report(t table.Writer, r *audit.Report) {
	verdict := a.colour(green, "clean")
	if !r.Clean() {
		verdict = a.colour(yellow, fmt.Sprintf("%d findings", r.Total))
	}
	t.AppendRow(table.Row{verdict, "", fmt.Sprintf("%d operations, %d entries, %d receipts, %d attempts",
		r.Checked.Operations, r.Checked.Entries, r.Checked.Receipts, r.Checked.Attempts)})
	for _, f := range r.Findings {
		t.AppendRow(table.Row{f.Code, f.StatusRef, cell(f.What)})
	}
}
