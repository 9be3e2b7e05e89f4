package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/entry"
)

// completeTime is how long a shell waits for what could be meant.
const completeTime = 2 * time.Second

// completeDead offers the status_refs of dead and unknown operations.
func (a *app) completeDead(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.complete(c, begun, func(ctx context.Context, l *link) (offers []cobra.Completion) {
		list, err := l.Dead(ctx, api.ReviewFilter{}, 200)
		if err != nil {
			return nil
		}
		for _, x := range list.Letters {
			offers = append(offers, cobra.CompletionWithDesc(x.StatusRef, string(x.State)+" "+x.Reason+" "+cell(x.Tool)+" "+cell(x.Key)))
		}
		return offers
	})
}

// completeLive offers what may be cancelled.
func (a *app) completeLive(c *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.operations(c, begun, entry.Pending, entry.Waiting)
}

// completeAny offers any operation.
func (a *app) completeAny(c *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.operations(c, begun)
}

// completeUnknown offers what may be asked about.
func (a *app) completeUnknown(c *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.operations(c, begun, entry.Unknown)
}

func (a *app) operations(c *cobra.Command, begun string, states ...entry.State) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.complete(c, begun, func(ctx context.Context, l *link) (offers []cobra.Completion) {
		page, err := l.List(ctx, api.Filter{States: states, Limit: 200})
		if err != nil {
			return nil
		}
		for _, x := range page.Operations {
			offers = append(offers, cobra.CompletionWithDesc(x.StatusRef, string(x.State)+" "+cell(x.Tool)+" "+cell(x.IdempotencyKey)))
		}
		return offers
	})
}

// completeTool offers the names of tools.
func (a *app) completeTool(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(c, begun, func(ctx context.Context, l *link) (offers []cobra.Completion) {
		list, err := l.Tools(ctx)
		if err != nil {
			return nil
		}
		for _, x := range list.Tools {
			offers = append(offers, cell(x.Name))
		}
		return offers
	})
}

// complete asks the daemon, or the file. A shell gets no error: it offers nothing.
func (a *app) complete(c *cobra.Command, begun string, ask func(context.Context, *link) []cobra.Completion) ([]cobra.Completion, cobra.ShellCompDirective) {
	parent := c.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completeTime)
	defer cancel()
	var found []cobra.Completion
	_ = a.with(ctx, looks, func(l *link) error { // as said above
		for _, offer := range ask(ctx, l) {
			if strings.HasPrefix(offer, begun) {
				found = append(found, offer)
			}
		}
		return nil
	})
	return found, cobra.ShellCompDirectiveNoFileComp
}
