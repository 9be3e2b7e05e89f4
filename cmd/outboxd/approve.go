package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/api"
)

func (a *app) approveCommand() *cobra.Command {
	var body api.Approve
	c := &cobra.Command{
		Use:   "approve REF --reason R",
		Short: "Give the approval that an operation waits for, or refuse it",
		Long: `Give the approval that an operation waits for, or refuse it.

Your uid and the reason are recorded. An operator may approve, but not for a subject
that the same uid may submit for. A refused operation is discarded.`,
		Args: cobra.ExactArgs(1),
	}
	c.Flags().BoolVar(&body.Refuse, "refuse", false, "refuse it")
	c.Flags().StringVar(&body.Reason, "reason", "", "why, for who looks at it later")
	c.RunE = a.does(func(ctx context.Context, args []string) error {
		return a.with(ctx, controls, func(l *link) error {
			ans, err := l.Approve(ctx, args[0], body)
			if err != nil {
				return err
			}
			if err := a.answer(ans); err != nil {
				return err
			}
			if body.Refuse == (ans.Status == "discarded") {
				return nil
			}
			return status(ans.Exit(api.Asked))
		})
	})
	return c
}
