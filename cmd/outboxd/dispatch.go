package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/contract"
)

func (a *app) dispatchCommand() *cobra.Command {
	var file, failure string
	var wait time.Duration
	c := &cobra.Command{
		Use:   "dispatch --case FILE",
		Short: "Hand over one case and have it attempted once, now",
		Long: `Hand over one case and have it attempted once, now.

FILE holds a case as the API takes it; - is stdin. A case that is there already is
answered as it stands: what is not finished is OUTCOME_UNKNOWN with its status_ref, and
nothing is sent or asked. Beside a daemon the case is handed to it and waited for.

--failure stops on purpose at one of after_intent_commit, after_claim and
after_downstream_commit and leaves the file as a crash there would: to see what status,
reconcile and the next run make of it.`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.StringVar(&file, "case", "", "`FILE` with the case")
	f.StringVar(&failure, "failure", "", "stop there, without a daemon")
	f.DurationVar(&wait, "wait", time.Minute, "how long a daemon is waited for")
	c.RunE = a.does(func(ctx context.Context, _ []string) error {
		if file == "" {
			return &usageError{"dispatch needs --case FILE"}
		}
		if wait < 0 || wait > api.MaxWait {
			return &contract.InputError{Path: "wait", What: "is out of range", Allowed: "0s to 1h, with a unit"}
		}
		from := "@" + file
		if file == "-" {
			from = file
		}
		raw, err := a.input("--case", from)
		if err != nil {
			return err
		}
		body, err := api.ParseCase(raw)
		if err != nil {
			return err
		}
		return a.with(ctx, dispatches, func(l *link) error {
			ans, err := l.Dispatch(ctx, body, failure, wait)
			if err != nil {
				return err
			}
			if err := a.answer(ans); err != nil {
				return err
			}
			return status(ans.Exit(api.Dispatched))
		})
	})
	return c
}
