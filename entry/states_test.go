package entry_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/entry"
)

var update = flag.Bool("update", false, "write the files that are made from the code")

// The page is made from the table, so that it cannot say anything else.
func TestStatesPageIsTheTable(t *testing.T) {
	const path = "../docs/states.md"
	want := statesPage()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatalf("write %s: %v", path, err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the table says: run go test ./entry -run States -update", path)
	}
}

func statesPage() string {
	var b strings.Builder
	b.WriteString(`# States of an entry

Made from the table in package ` + "`entry`" + ` by ` + "`go test ./entry -run States -update`" + `: do not edit.

What is not here cannot happen. ` + "`dead`" + ` means proof of no effect, ` + "`delivered`" + ` proof of the effect; whatever
may have happened without proof is ` + "`unknown`" + `. An entry that is being asked about stays ` + "`unknown`" + `. Where an event
leads to one of several states, the effect class, what was sent and is unproven, and the limits decide.

` + "```mermaid\nstateDiagram-v2\n")
	for _, e := range arrows() {
		fmt.Fprintf(&b, "    %s --> %s: %s\n", e.from, e.to, strings.Join(e.events, " / "))
	}
	b.WriteString("```\n\n| from | event | to |\n|---|---|---|\n")
	for _, tr := range entry.Transitions {
		to := make([]string, len(tr.To))
		for i, s := range tr.To {
			to[i] = string(s)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", nameOr(tr.From, "-"), tr.Event, strings.Join(to, ", "))
	}
	return b.String()
}

type arrow struct {
	from, to string
	events   []string
}

// arrows draws one line for all events that lead from one state to another.
func arrows() (all []*arrow) {
	known := map[string]*arrow{}
	for _, tr := range entry.Transitions {
		for _, to := range tr.To {
			from := nameOr(tr.From, "[*]")
			a := known[from+">"+string(to)]
			if a == nil {
				a = &arrow{from: from, to: string(to)}
				known[from+">"+string(to)] = a
				all = append(all, a)
			}
			a.events = append(a.events, strings.ReplaceAll(string(tr.Event), ":", ","))
		}
	}
	return all
}

func nameOr(s entry.State, none string) string {
	if s == "" {
		return none
	}
	return string(s)
}
