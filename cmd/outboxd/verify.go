package main

import (
	"context"
	"errors"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/contract"
)

// verified is what verify answers with.
type verified struct {
	Gate      string   `json:"gate"`
	Code      string   `json:"code"`
	StatusRef string   `json:"status_ref,omitzero"`
	Fields    []string `json:"fields,omitzero"` // what does not fit, names only
}

func (a *app) verifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE",
		Short: "Recompute the digests of a settled answer, without a database",
		Long: `Recompute the digests of a settled answer, without a database.

FILE holds the answer of a submit, status, reconcile or dispatch of a delivered operation,
or its member package; - is stdin. Exit status 1: it is not what was recorded. Whoever made
a package could also have made its digests: compare call_binding_sha256 with one that you
trust, such as the database's, to know where it comes from.`,
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(_ context.Context, args []string) error {
			from := "@" + args[0]
			if args[0] == "-" {
				from = "-"
			}
			raw, err := a.input("FILE", from)
			if err != nil {
				return err
			}
			out := verified{Gate: api.Pass, Code: "OK"}
			p, err := contract.ParsePackage(raw)
			switch {
			case errors.Is(err, contract.ErrPackage):
				out.Fields = []string{"package"}
			case err != nil:
				return err
			default:
				out.StatusRef, out.Fields = p.StatusRef, p.Verify()
			}
			if len(out.Fields) > 0 {
				out.Gate, out.Code = api.Block, "PACKAGE_INVALID"
			}
			if err := a.show(out, func(t table.Writer) {
				t.AppendHeader(table.Row{"gate", "code", "status_ref"})
				t.AppendRow(table.Row{out.Gate, out.Code, cell(out.StatusRef)})
			}); err != nil || out.Gate == api.Pass {
				return err
			}
			return exit(exitNo)
		}),
	}
}
