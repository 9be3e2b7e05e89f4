package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/api"
)

func (a *app) statusCommand() *cobra.Command {
	var f api.Filter
	c := &cobra.Command{
		Use:   "status REF | --tool T --key K",
		Short: "Tell where an operation stands",
		Args:  cobra.MaximumNArgs(1), ValidArgsFunction: a.completeAny,
		RunE: a.does(func(ctx context.Context, args []string) error {
			byKey := f.Tool != "" && f.Key != ""
			if (len(args) == 1) == byKey || (f.Tool != "") != (f.Key != "") {
				return &usageError{"status takes a status_ref, or --tool and --key"}
			}
			return a.with(ctx, looks, func(l *link) error {
				if byKey {
					return a.asked(l.Find(ctx, f))
				}
				return a.asked(l.Status(ctx, args[0], 0))
			})
		}),
	}
	c.Flags().StringVar(&f.Tool, "tool", "", "name of the tool")
	c.Flags().StringVar(&f.Key, "key", "", "idempotency key")
	c.Flags().StringVar(&f.Tenant, "tenant", "", "tenant, where several have this key")
	c.Flags().StringVar(&f.Subject, "subject", "", "subject, where several have this key")
	return c
}

func (a *app) reconcileCommand() *cobra.Command {
	var e api.Expected
	c := &cobra.Command{
		Use:   "reconcile REF",
		Short: "Ask the downstream now what became of an unknown operation",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: a.completeUnknown,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.with(ctx, sends, func(l *link) error { return a.asked(l.ReconcileExpected(ctx, args[0], e)) })
		}),
	}
	c.Flags().StringVar(&e.RequestSum, "request-sha256", "", "digest of the request that is meant: nothing is asked where it is another one")
	c.Flags().StringVar(&e.IdempotencyKey, "key", "", "idempotency key that is meant: as above")
	return c
}

// asked shows the answer to a status or a reconcile.
func (a *app) asked(ans api.Answer, err error) error {
	if err != nil {
		return err
	}
	if err := a.answer(ans); err != nil {
		return err
	}
	return status(ans.Exit(api.Asked))
}
