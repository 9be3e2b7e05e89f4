package main

import (
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/outboxd/outboxd/api"
)

// health is the table of tools. What needs somebody is coloured, and what stands
// before the tools is a row of its own.
func (a *app) health(t table.Writer, list api.Tools) {
	t.AppendHeader(table.Row{"tool", "state", "in flight", "due", "oldest due", "later", "unknown", "dead", "parked", "why"})
	for _, tool := range list.Tools {
		row := table.Row{cell(tool.Name), a.toolState(tool)}
		if l := tool.Load; l != nil {
			row = append(row, l.InFlight, l.Due, age(l.OldestDueAge), l.Later+l.Waiting,
				a.count(l.Unknown), a.count(l.Dead), a.count(l.Parked))
		} else {
			row = append(row, "", "", "", "", "", "", "")
		}
		t.AppendRow(append(row, why(tool)))
	}
	known := map[string]bool{}
	for _, tool := range list.Tools {
		known[tool.Name] = true
	}
	for _, p := range list.Intake.Tools {
		if !known[p.Name] {
			t.AppendRow(table.Row{cell(p.Name), a.colour(yellow, "not configured"), "", "", "", "", "", "",
				a.count(p.Rows), "its rows wait in outbox_intake"})
		}
	}
	if n := list.Intake.Refused; n > 0 {
		t.AppendRow(table.Row{"(any)", "", "", "", "", "", "", "", "", fmt.Sprintf("%d refused intake rows: outboxd refused list", n)})
	}
}

func (a *app) toolState(tool api.Tool) string {
	switch {
	case !tool.Configured:
		return a.colour(yellow, "not configured")
	case tool.Paused:
		return a.colour(yellow, "paused")
	case tool.Breaker == "open" || tool.Breaker == "probing":
		return a.colour(yellow, "breaker "+tool.Breaker)
	}
	return a.colour(green, "working")
}

// why it does not simply work, and since when.
func why(tool api.Tool) string {
	switch {
	case tool.Paused:
		return cell(tool.PauseReason) + ", since " + instant(tool.PausedAt)
	case tool.Breaker == "open":
		return "the destination fails; one attempt at " + instant(tool.BreakerUntil)
	case tool.Breaker == "probing":
		return "the destination failed; one attempt at a time"
	}
	return ""
}

// count is coloured where it waits for somebody.
func (a *app) count(n int64) string {
	if n == 0 {
		return "0"
	}
	return a.colour(yellow, fmt.Sprint(n))
}

func age(seconds float64) string {
	if seconds == 0 {
		return ""
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
