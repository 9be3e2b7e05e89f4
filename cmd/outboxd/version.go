package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
)

// version is what the build says of itself, "devel" where it says nothing.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Tell the version of this program",
		Args:  cobra.NoArgs,
		RunE: a.does(func(context.Context, []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
			}{version(), runtime.Version()}
			return a.show(v, func(t table.Writer) { t.AppendRow(table.Row{"outboxd", v.Version, v.Go}) })
		}),
	}
}
