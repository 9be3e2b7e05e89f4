package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/contract"
)

// decision is the flags of a review.
type decision struct {
	selector
	body  api.Review
	limit int
	dry   bool
}

func (d *decision) noted(c *cobra.Command) {
	c.Flags().StringVar(&d.body.Reason, "reason", "", "why, for who looks at it later (required)")
	c.Flags().StringVar(&d.body.By, "by", "", "who, as a note: your uid is the record")
}

func (d *decision) many(c *cobra.Command) {
	d.noted(c)
	d.selector.flags(c)
	c.Flags().IntVar(&d.limit, "limit", 0, "at most this many (default: all that are selected)")
	c.Flags().BoolVar(&d.dry, "dry-run", false, "only count what would be done")
}

func (a *app) deadRetryCommand() *cobra.Command {
	d := &decision{body: api.Review{Action: "retry"}}
	c := &cobra.Command{
		Use:   "retry REF... | --tool T ...",
		Short: "Begin a new round: attempts go on, with the same key and fresh limits",
		Long: `Begin a new round: attempts go on, with the same key and fresh limits.

With flags in the place of REFs it works in short transactions, which hold up
nobody, and the new rounds begin one after the other. It may be interrupted at any
moment: what is done is done, and the same command again goes on with the rest.`,
		ValidArgsFunction: a.completeDead,
		RunE:              a.does(func(ctx context.Context, refs []string) error { return a.review(ctx, d, refs) }),
	}
	d.many(c)
	c.Flags().BoolVar(&d.body.AcceptContract, "accept-contract", false, "under the tool's contract of today, which is another one since")
	c.Flags().BoolVar(&d.body.AcceptDuplicateRisk, "accept-duplicate-risk", false, "although it may take effect a second time")
	c.Flags().IntVar(&d.body.PerSecond, "per-second", 0, "new rounds a second (default: half the tool's rate, at most 100)")
	return c
}

func (a *app) deadDiscardCommand() *cobra.Command {
	d := &decision{body: api.Review{Action: "discard"}}
	c := &cobra.Command{
		Use:               "discard REF... | --tool T ...",
		Short:             "End operations that are not wanted any more",
		ValidArgsFunction: a.completeDead,
		RunE:              a.does(func(ctx context.Context, refs []string) error { return a.review(ctx, d, refs) }),
	}
	d.many(c)
	return c
}

func (a *app) deadResolveCommand() *cobra.Command {
	d := &decision{body: api.Review{Action: "resolve"}}
	var applied, not bool
	var proof, result string
	c := &cobra.Command{
		Use:   "resolve REF --applied|--not-applied --evidence JSON|@FILE",
		Short: "Tell what became of an unknown operation: it is delivered, or begins a new round",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: a.completeDead,
		RunE: a.does(func(ctx context.Context, refs []string) (err error) {
			if applied == not {
				return &usageError{"resolve takes --applied or --not-applied"}
			}
			d.body.Applied = &applied
			if d.body.Proof, err = a.json("evidence", proof); err != nil {
				return err
			}
			if result != "" {
				if d.body.Result, err = a.json("result", result); err != nil {
					return err
				}
			}
			return a.review(ctx, d, refs)
		}),
	}
	d.noted(c)
	c.Flags().BoolVar(&applied, "applied", false, "it took effect")
	c.Flags().BoolVar(&not, "not-applied", false, "no attempt of it took effect")
	c.Flags().StringVar(&proof, "evidence", "", "what shows it, as `JSON|@FILE|-` (required)")
	c.Flags().StringVar(&result, "result", "", "with --applied: the result that callers get, as `JSON|@FILE|-` (default: none)")
	c.Flags().BoolVar(&d.body.AcceptContract, "accept-contract", false, "with --not-applied: go on under the tool's contract of today")
	return c
}

// json reads a flag that holds JSON.
func (a *app) json(name, value string) ([]byte, error) {
	if value == "" {
		return nil, &usageError{"--" + name + " is required: JSON, @FILE or -"}
	}
	raw, err := a.input("--"+name, value)
	if err != nil {
		return nil, err
	}
	canonical, err := contract.Canonical(raw)
	if err != nil {
		return nil, under(name, err)
	}
	return canonical, nil
}

func (a *app) review(ctx context.Context, d *decision, refs []string) error {
	switch {
	case len(refs) > 0 && (len(d.states) > 0 || d.ReviewFilter.Reason+d.Fingerprint+d.before != "" || d.limit != 0), len(refs) == 0 && !d.selects():
		return &usageError{d.body.Action + " takes REFs, or one of --tool, --reason-code, --fingerprint, --state, --before; beside REFs only --tool"}
	case d.body.Reason == "":
		return &usageError{"--reason is required"}
	case d.limit < 0:
		return &contract.InputError{Path: "limit", What: "is out of range", Allowed: "1 and more"}
	}
	how := controls
	if d.body.DryRun = d.dry; d.dry {
		how = looks
	}
	return a.with(ctx, how, func(l *link) error {
		if len(refs) == 0 {
			return a.bulk(ctx, l, d)
		}
		d.body.Refs, d.body.Tool = refs, d.selector.Tool
		r, err := l.Review(ctx, d.body)
		if err != nil {
			return err
		}
		if len(refs) == 1 && !d.dry {
			ans, err := l.Status(ctx, refs[0], 0)
			if err != nil {
				return err
			}
			return a.answer(ans)
		}
		return a.reviewed(r)
	})
}

// bulkCall is how many entries one call decides about.
const bulkCall = 500

// bulk calls until nothing that is selected is left. What dies again meanwhile is
// not what was selected.
func (a *app) bulk(ctx context.Context, l *link, d *decision) error {
	f, err := d.filter()
	if err != nil {
		return err
	}
	if f.Before.IsZero() {
		f.Before = time.Now()
	}
	sum := api.ReviewResult{Action: d.body.Action, DryRun: d.dry, Refused: map[string]int{}}
	for {
		body := d.body
		body.Filter, body.Limit, body.DueFrom = &f, bulkCall, sum.DueNext
		if d.limit > 0 {
			body.Limit = min(bulkCall, d.limit-sum.Matched)
		}
		r, err := l.Review(ctx, body)
		if err != nil {
			return err
		}
		sum.Matched, sum.Done, sum.DueNext = sum.Matched+r.Matched, sum.Done+r.Done, r.DueNext
		for code, n := range r.Refused {
			sum.Refused[code] += n
		}
		if f.After = r.Next; f.After == "" || d.limit > 0 && sum.Matched >= d.limit {
			return a.reviewed(sum)
		}
	}
}

// reviewed shows what a review of several operations came to: 1 where some of them
// were refused.
func (a *app) reviewed(r api.ReviewResult) error {
	err := a.show(r, func(t table.Writer) {
		done := "done"
		if r.DryRun {
			done = "would be done"
		}
		t.AppendRows([]table.Row{{"action", r.Action}, {"matched", r.Matched}, {done, r.Done}})
		optional(t, "refused", counted(r.Refused))
		if r.Action != "discard" && !r.DryRun {
			optional(t, "last is due", instant(r.DueNext))
		}
		for _, x := range r.Results {
			t.AppendRow(table.Row{x.StatusRef, string(x.State) + " " + cell(x.Code)})
		}
	})
	if err != nil {
		return err
	}
	if len(r.Refused) > 0 {
		return exit(exitNo)
	}
	return nil
}

func (a *app) cancelCommand() *cobra.Command {
	var reason, by string
	c := &cobra.Command{
		Use:   "cancel REF --reason R",
		Short: "End a pending or waiting operation; one that may have had an effect becomes unknown",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: a.completeLive,
		RunE: a.does(func(ctx context.Context, args []string) error {
			if reason == "" {
				return &usageError{"--reason is required"}
			}
			return a.with(ctx, controls, func(l *link) error {
				ans, err := l.Cancel(ctx, args[0], reason, by)
				if err != nil {
					return err
				}
				return a.answer(ans)
			})
		}),
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for who looks at it later (required)")
	c.Flags().StringVar(&by, "by", "", "who, as a note: your uid is the record")
	return c
}

func sortedKeys(m map[string]int) []string { return slices.Sorted(maps.Keys(m)) }
