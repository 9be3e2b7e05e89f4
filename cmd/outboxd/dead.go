package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
)

func (a *app) deadCommand() *cobra.Command {
	c := &cobra.Command{Use: "dead", Short: "Review dead and unknown operations", Args: cobra.NoArgs, RunE: a.parent,
		Long: `Review dead and unknown operations.

Dead was given up, with proof of no effect. Unknown may have taken effect, and
nobody has proof. What is decided is recorded with the uid of who decides.`}
	c.AddCommand(a.deadListCommand(), a.deadShowCommand(), a.deadRetryCommand(), a.deadResolveCommand(), a.deadDiscardCommand())
	return c
}

// selector is the flags that select dead and unknown operations.
type selector struct {
	api.ReviewFilter
	states []string
	before string
}

func (s *selector) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringSliceVar(&s.states, "state", nil, "only these `S,...` of unknown, dead")
	f.StringVar(&s.Tool, "tool", "", "only this tool")
	f.StringVar(&s.Reason, "reason-code", "", "only what was given up for this `CODE`, such as attempts_exhausted")
	f.StringVar(&s.Fingerprint, "fingerprint", "", "only this group of dead list --group")
	f.StringVar(&s.before, "before", "", "only what stands so since before this `TIME` (RFC 3339)")
}

// selects reports whether anything narrows the selection.
func (s *selector) selects() bool {
	return len(s.states) > 0 || s.Tool+s.Reason+s.Fingerprint+s.before != ""
}

func (s *selector) filter() (f api.ReviewFilter, err error) {
	f = s.ReviewFilter
	for _, name := range s.states {
		if name != string(entry.Dead) && name != string(entry.Unknown) {
			return f, &usageError{"--state takes unknown, dead"}
		}
		f.States = append(f.States, entry.State(name))
	}
	if s.before == "" {
		return f, nil
	}
	if f.Before, err = time.Parse(time.RFC3339, s.before); err != nil {
		return f, &contract.InputError{Path: "before", What: "is no instant", Allowed: "an instant as RFC 3339 has it: 2030-01-31T12:00:00Z"}
	}
	return f, nil
}

func (a *app) deadListCommand() *cobra.Command {
	var s selector
	var group bool
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List dead and unknown operations, in the order of acceptance, or group them by error",
		Args:  cobra.NoArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			f, err := s.filter()
			if err == nil {
				err = some(limit)
			}
			if err != nil {
				return err
			}
			return a.with(ctx, looks, func(l *link) error {
				if group {
					list, err := l.DeadGroups(ctx, f)
					if err != nil {
						return err
					}
					return a.show(list, func(t table.Writer) { groups(t, list) })
				}
				list, err := l.Dead(ctx, f, limit)
				if err != nil {
					return err
				}
				return a.show(list, func(t table.Writer) { letters(t, list) })
			})
		}),
	}
	s.flags(c)
	c.Flags().BoolVar(&group, "group", false, "one line for each error, the most frequent first")
	c.Flags().IntVar(&limit, "limit", 50, "at most this many, 1 to 1000")
	c.Flags().StringVar(&s.After, "after", "", "begin behind this `REF`")
	return c
}

func groups(t table.Writer, list api.LetterGroups) {
	t.AppendHeader(table.Row{"fingerprint", "tool", "reason", "code", "dead", "unknown", "first", "last", "excerpt"})
	for _, g := range list.Groups {
		t.AppendRow(table.Row{g.Fingerprint, cell(g.Tool), cell(g.Reason), cell(g.Code), g.Dead, g.Unknown,
			instant(g.First), instant(g.Last), brief(g.Excerpt)})
	}
}

func letters(t table.Writer, list api.Letters) {
	t.AppendHeader(table.Row{"status_ref", "state", "reason", "tool", "tenant", "subject", "key", "attempts", "since", "due_at", "code"})
	for _, l := range list.Letters {
		t.AppendRow(table.Row{l.StatusRef, l.State, cell(l.Reason), cell(l.Tool), cell(l.Tenant), cell(l.Subject), cell(l.Key),
			l.Attempts, instant(l.Since), instant(l.DueAt), cell(l.Code)})
	}
	if list.Next != "" {
		t.SetCaption("more: --after %s", list.Next)
	}
}

func (a *app) deadShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show REF",
		Short: "Show all that is known of an operation: attempts, decisions, and why it does not run",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: a.completeDead,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.with(ctx, looks, func(l *link) error {
				d, err := l.Detail(ctx, args[0])
				if err != nil {
					return err
				}
				return a.detail(d)
			})
		}),
	}
}

func (a *app) detail(d api.Detail) error {
	err := a.show(d, func(t table.Writer) {
		for _, w := range d.Waits {
			t.AppendRow(table.Row{"waits", cell(until(w))})
		}
		t.AppendRows([]table.Row{{"state", d.State}, {"tool", cell(d.Tool) + " (" + string(d.Effect) + ")"}})
		optional(t, "reason", d.Reason)
		optional(t, "contract_drift", d.Drift)
		t.AppendRows([]table.Row{{"tenant", cell(d.Tenant)}, {"subject", cell(d.Subject)}, {"key", cell(d.IdempotencyKey)},
			{"wire_key", cell(d.WireKey)}, {"arguments", brief(string(d.Arguments))},
			{"round", fmt.Sprintf("%d, with %d failures, %d lapses, %d questions", d.Round, d.Failures, d.Lapses, d.Queries)},
			{"attempts", d.Attempts}})
		for _, at := range []struct {
			name string
			time time.Time
		}{{"accepted_at", d.AcceptedAt}, {"not_before", d.NotBefore}, {"round_at", d.RoundAt}, {"changed_at", d.ChangedAt}, {"due_at", d.DueAt},
			{"last_sent_at", d.LastSentAt}, {"over_at", d.OverAt}, {"unproven_since", d.UnprovenSince}} {
			optional(t, at.name, instant(at.time))
		}
		t.AppendRow(table.Row{"status_ref", d.StatusRef})
	})
	if err != nil || !a.inTables() {
		return err
	}
	if len(d.Evidence) > 0 {
		err = a.section(d.Evidence, func(t table.Writer) {
			t.AppendHeader(table.Row{"at", "round", "attempt", "kind", "phase", "class", "code", "excerpt"})
			for _, e := range d.Evidence {
				t.AppendRow(table.Row{instant(e.At), e.Round, e.Attempt, e.Kind, e.Phase, cell(e.Class), cell(e.Code), brief(e.Excerpt)})
			}
		})
	}
	if err != nil || len(d.Reviews) == 0 {
		return err
	}
	return a.section(d.Reviews, func(t table.Writer) {
		t.AppendHeader(table.Row{"at", "round", "action", "uid", "by", "before", "after", "reason"})
		for _, r := range d.Reviews {
			t.AppendRow(table.Row{instant(r.At), r.Round, r.Action, r.UID, brief(r.By), r.Before, r.After, brief(r.Reason)})
		}
	})
}

// section is a table below another one.
func (a *app) section(value any, rows func(t table.Writer)) error {
	if err := a.write(" "); err != nil {
		return err
	}
	return a.show(value, rows)
}

func until(w api.WaitReason) string {
	text := w.Code + ": " + w.What
	if !w.Until.IsZero() {
		text += " (until " + instant(w.Until) + ")"
	}
	return text
}

// counted is refusals by code, in words.
func counted(refused map[string]int) string {
	var list []string
	for _, code := range sortedKeys(refused) {
		list = append(list, fmt.Sprintf("%d %s", refused[code], code))
	}
	return strings.Join(list, ", ")
}
