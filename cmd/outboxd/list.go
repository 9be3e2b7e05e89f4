package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
)

func (a *app) listCommand() *cobra.Command {
	var f api.Filter
	var states []string
	c := &cobra.Command{
		Use:   "list",
		Short: "List operations, in the order of acceptance",
		Args:  cobra.NoArgs,
		RunE: a.does(func(ctx context.Context, _ []string) (err error) {
			if f.States, err = statesOf(states); err != nil {
				return err
			}
			if err := some(f.Limit); err != nil {
				return err
			}
			return a.with(ctx, looks, func(l *link) error {
				page, err := l.List(ctx, f)
				if err != nil {
					return err
				}
				return a.show(page, func(t table.Writer) { operations(t, page) })
			})
		}),
	}
	c.Flags().StringSliceVar(&states, "state", nil, "only these `S,...` of "+words(", "))
	c.Flags().StringVar(&f.Tool, "tool", "", "only this tool")
	c.Flags().IntVar(&f.Limit, "limit", 50, "at most this many, 1 to 1000")
	c.Flags().StringVar(&f.After, "after", "", "begin behind this `REF`")
	return c
}

// some refuses a limit of 0, which the client would take for none; the API refuses
// every other one that is out of range.
func some(limit int) error {
	if limit == 0 {
		return &contract.InputError{Path: "limit", What: "is out of range", Allowed: "1 to 1000"}
	}
	return nil
}

func words(between string) string {
	names := make([]string, len(entry.States))
	for i, s := range entry.States {
		names[i] = string(s)
	}
	return strings.Join(names, between)
}

func statesOf(names []string) (states []entry.State, err error) {
	for _, name := range names {
		if !slices.Contains(entry.States, entry.State(name)) {
			return nil, &usageError{"--state takes " + words(", ")}
		}
		states = append(states, entry.State(name))
	}
	return states, nil
}

func operations(t table.Writer, page api.Page) {
	t.AppendHeader(table.Row{"status_ref", "state", "tool", "tenant", "subject", "key", "attempts", "due_at", "reason"})
	for _, op := range page.Operations {
		t.AppendRow(table.Row{op.StatusRef, op.State, cell(op.Tool), cell(op.Tenant), cell(op.Subject),
			cell(op.IdempotencyKey), op.Attempts, instant(op.DueAt), cell(op.Reason)})
	}
	if page.Next != "" {
		t.SetCaption("more: --after %s", page.Next)
	}
}

func (a *app) refusedCommand() *cobra.Command {
	c := &cobra.Command{Use: "refused", Short: "Look at intake rows that were not accepted", Args: cobra.NoArgs, RunE: a.parent}
	var after int64
	var limit int
	list := &cobra.Command{
		Use:   "list",
		Short: "List the intake rows that could not be accepted, with reasons",
		Args:  cobra.NoArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if err := some(limit); err != nil {
				return err
			}
			return a.with(ctx, looks, func(l *link) error {
				page, err := l.Refused(ctx, after, limit)
				if err != nil {
					return err
				}
				return a.show(page, func(t table.Writer) { refusedRows(t, page) })
			})
		}),
	}
	list.Flags().Int64Var(&after, "after", 0, "begin behind this `ID`")
	list.Flags().IntVar(&limit, "limit", 50, "at most this many, 1 to 1000")
	c.AddCommand(list)
	return c
}

func refusedRows(t table.Writer, page api.RefusedPage) {
	t.AppendHeader(table.Row{"id", "refused_at", "code", "tool", "tenant", "subject", "key", "message"})
	for _, r := range page.Refused {
		t.AppendRow(table.Row{r.ID, instant(r.RefusedAt), cell(r.Code), brief(r.Tool), brief(r.Tenant), brief(r.Subject),
			brief(r.Key), brief(r.Message)})
	}
	if page.Next != 0 {
		t.SetCaption("%s", fmt.Sprintf("more: --after %d", page.Next))
	}
}
