package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/cmd/outboxd/demo"
)

func (a *app) demoCommand() *cobra.Command {
	var o demo.Options
	c := &cobra.Command{
		Use:   "demo",
		Short: "See in some seconds what outboxd does: retries, a lost answer, kill -9",
		Long: `See in some seconds what outboxd does, on a temporary file that goes again.

Five operations: one that just succeeds, one that succeeds on the third try, one
whose answer is lost, one that is refused for good, and one during which the
daemon is killed with SIGKILL and started again. The downstream is a process of
its own and counts what really happened. Exit status 0: all was as expected;
1: something was not.`,
		Args: cobra.NoArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			o.Out, o.Env = a.stdout, a.env
			o.NoColor = a.flags.noColor || a.variable("NO_COLOR") != ""
			o.Dumb = a.variable("TERM") == "dumb"
			o.JSON = a.flags.output == "json"
			return demoEnd(demo.Run(ctx, o))
		}),
	}
	c.Flags().BoolVar(&o.Keep, "keep", false, "keep the temporary directory: database, config and log")
	c.Flags().StringVar(&o.Fault, "fault", "", "let the downstream do something wrong, which must be noticed")
	_ = c.Flags().MarkHidden("fault") // an error: there is no such flag
	c.AddCommand(a.downstreamCommand())
	return c
}

// downstreamCommand is the other side of the demo, as the demo starts it.
func (a *app) downstreamCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "downstream [FAULT]",
		Short:  "The service that the demo calls",
		Hidden: true,
		Args:   cobra.MaximumNArgs(1),
		RunE: a.does(func(ctx context.Context, args []string) error {
			return demo.Downstream(ctx, a.stdin, a.stdout, append(args, "")[0])
		}),
	}
}

func demoEnd(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, demo.ErrUnmet):
		return exit(exitNo)
	case errors.Is(err, demo.ErrUnknownFault):
		return &usageError{demo.ErrUnknownFault.Error()}
	case errors.Is(err, demo.ErrOutput):
		return &coded{"OUTPUT_IO_ERROR", "stdout does not take what is shown"}
	case errors.Is(err, context.Canceled):
		return &coded{"INTERRUPTED", "the demo was stopped before its end"}
	}
	return err
}
