package main

import (
	"context"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/api"
)

// owner is the flags that say whose session is meant.
type owner struct{ tenant, subject string }

func (o *owner) flags(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&o.tenant, "tenant", "", "whose session (may be left out where your uid may submit for one tenant and subject only)")
	c.Flags().StringVar(&o.subject, "subject", "", "whose session, within the tenant")
	return c
}

func (o *owner) principal() *api.Principal {
	if o.tenant == "" && o.subject == "" {
		return nil
	}
	return &api.Principal{Tenant: o.tenant, Subject: o.subject}
}

func (a *app) sessionCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "session",
		Short: "Open conversations, move their turns, read what was written to them or set aside",
		Args:  cobra.NoArgs,
		RunE:  a.parent,
	}
	c.AddCommand(a.sessionOpen(), a.sessionTurn(), a.sessionInterrupt(), a.sessionHistory(), a.sessionSetAside())
	return c
}

func (a *app) sessionOpen() *cobra.Command {
	var o owner
	return o.flags(&cobra.Command{
		Use:   "open [NAME]",
		Short: "Open a session with its first turn; without a name one is made",
		Args:  cobra.MaximumNArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			body := api.OpenSession{Principal: o.principal()}
			if len(args) == 1 {
				body.Session = args[0]
			}
			return a.session(ctx, func(l *link) (api.Session, error) { return l.OpenSession(ctx, body) })
		}),
	})
}

func (a *app) sessionTurn() *cobra.Command {
	var o owner
	var turn int64
	c := o.flags(&cobra.Command{
		Use:   "turn NAME",
		Short: "End the current turn and begin the next one",
		Args:  cobra.ExactArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.session(ctx, func(l *link) (api.Session, error) {
				return l.NextTurn(ctx, args[0], o.principal(), api.TurnControl{Turn: turn})
			})
		}),
	})
	c.Flags().Int64Var(&turn, "turn", 0, "only if this turn `N` is the current one")
	return c
}

func (a *app) sessionInterrupt() *cobra.Command {
	var o owner
	var b api.TurnControl
	c := o.flags(&cobra.Command{
		Use:   "interrupt NAME",
		Short: "Close the current turn's foreground and begin the next turn, in one commit",
		Args:  cobra.ExactArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.session(ctx, func(l *link) (api.Session, error) {
				return l.Interrupt(ctx, args[0], o.principal(), b)
			})
		}),
	})
	c.Flags().Int64Var(&b.Turn, "turn", 0, "only if this turn `N` is the current one")
	c.Flags().BoolVar(&b.Stop, "stop", false, "begin no next turn")
	return c
}

func (a *app) session(ctx context.Context, do func(*link) (api.Session, error)) error {
	return a.with(ctx, controls, func(l *link) error {
		s, err := do(l)
		if err != nil {
			return err
		}
		return a.show(s, func(t table.Writer) {
			state := a.colour(green, "open")
			if !s.Open {
				state = a.colour(yellow, "closed")
			}
			t.AppendRow(table.Row{"session", cell(s.Session)})
			t.AppendRow(table.Row{"turn", strconv.FormatInt(s.Turn, 10) + " " + state})
			t.AppendRow(table.Row{"tenant", cell(s.Tenant)})
			t.AppendRow(table.Row{"subject", cell(s.Subject)})
		})
	})
}

func (a *app) sessionHistory() *cobra.Command {
	var o owner
	var turn, after int64
	var wait time.Duration
	c := o.flags(&cobra.Command{
		Use:   "history NAME",
		Short: "List the results that were written to the turns of a session",
		Args:  cobra.ExactArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.history(ctx, func(l *link) (api.History, error) {
				return l.History(ctx, args[0], o.principal(), turn, after, wait)
			})
		}),
	})
	c.Flags().Int64Var(&turn, "turn", 0, "only of this turn `N`")
	c.Flags().Int64Var(&after, "after", 0, "begin behind this `ROW`")
	c.Flags().DurationVar(&wait, "wait", 0, "where there is none, wait so long for one")
	return c
}

func (a *app) sessionSetAside() *cobra.Command {
	var o owner
	var after, row int64
	var wait time.Duration
	var b api.Fetch
	c := o.flags(&cobra.Command{
		Use:   "set-aside NAME",
		Short: "List the results that came too late for their turn, or fetch one into the current turn",
		Args:  cobra.ExactArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			if row == 0 {
				return a.history(ctx, func(l *link) (api.History, error) { return l.SetAside(ctx, args[0], o.principal(), after, wait) })
			}
			if b.Turn == 0 || b.Reason == "" {
				return &usageError{"--fetch needs --turn and --reason: it is recorded who put an earlier task's result there, and why"}
			}
			return a.with(ctx, controls, func(l *link) error {
				fetched, err := l.Fetch(ctx, args[0], o.principal(), row, b)
				if err != nil {
					return err
				}
				return a.show(fetched, func(t table.Writer) { historyRows(t, []api.HistoryRow{fetched}) })
			})
		}),
	})
	c.Flags().Int64Var(&after, "after", 0, "begin behind this `ROW`")
	c.Flags().DurationVar(&wait, "wait", 0, "where there is none, wait so long for one")
	c.Flags().Int64Var(&row, "fetch", 0, "put this `ROW` into the current turn")
	c.Flags().Int64Var(&b.Turn, "turn", 0, "the current turn `N`, of a fetch")
	c.Flags().StringVar(&b.Reason, "reason", "", "why, of a fetch")
	return c
}

func (a *app) history(ctx context.Context, do func(*link) (api.History, error)) error {
	return a.with(ctx, looks, func(l *link) error {
		h, err := do(l)
		if err != nil {
			return err
		}
		return a.show(h, func(t table.Writer) { historyRows(t, h.Rows) })
	})
}

func historyRows(t table.Writer, rows []api.HistoryRow) {
	t.AppendHeader(table.Row{"row", "decision", "from", "to", "tool", "status", "result", "status_ref"})
	for _, r := range rows {
		to := "-"
		if r.TargetTurn != 0 {
			to = strconv.FormatInt(r.TargetTurn, 10)
		}
		t.AppendRow(table.Row{r.Row, r.Decision, r.SourceTurn, to, brief(r.Tool), r.Status, brief(string(r.Result)), r.StatusRef})
	}
}
