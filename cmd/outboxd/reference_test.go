package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

var update = flag.Bool("update", false, "write the command reference and the man pages")

// where the pages that are made from the commands stand.
const (
	reference = "../../docs/reference/cli.md"
	manPages  = "../../docs/man"
)

// edition is the date on the man pages: they change with the commands, not with
// the day.
var edition = time.Date(2026, time.December, 1, 0, 0, 0, 0, time.UTC)

// TestReferenceIsTrue: what the pages say of the commands is what the commands say
// of themselves. `go test ./cmd/outboxd -run Reference -update` writes them.
func TestReferenceIsTrue(t *testing.T) {
	root := (&app{}).root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	hush(root)
	want := map[string][]byte{}
	var all bytes.Buffer
	all.WriteString("# The command line\n\nMade from the commands themselves. Flags that every command has stand at [outboxd](#outboxd).\n")
	for _, c := range commands(root) {
		want[filepath.Join(manPages, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")] = man(t, c)
		all.Write(section(t, c))
	}
	want[reference] = all.Bytes()
	if *update {
		rewrite(t, want)
		return
	}
	have, err := filepath.Glob(filepath.Join(manPages, "*.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(have, reference) {
		text, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(text, want[name]) {
			t.Errorf("%s is not what the commands say: go test ./cmd/outboxd -run Reference -update", name)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("%s is missing: go test ./cmd/outboxd -run Reference -update", name)
	}
}

// hush leaves out on which day a page was made.
func hush(c *cobra.Command) {
	c.DisableAutoGenTag = true
	for _, sub := range c.Commands() {
		hush(sub)
	}
}

// commands lists those that a user may see, each before the ones below it.
func commands(c *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			list = append(list, commands(sub)...)
		}
	}
	return list
}

func man(t *testing.T, c *cobra.Command) []byte {
	t.Helper()
	var out bytes.Buffer
	header := &doc.GenManHeader{Section: "1", Source: "outboxd", Manual: "outboxd", Date: &edition}
	if err := doc.GenMan(c, header, &out); err != nil {
		t.Fatalf("make man page: %v", err)
	}
	return out.Bytes()
}

// section is the page of one command without what the first one says for all.
func section(t *testing.T, c *cobra.Command) []byte {
	t.Helper()
	var out bytes.Buffer
	link := func(page string) string {
		return "#" + strings.ReplaceAll(strings.TrimSuffix(page, ".md"), "_", "-")
	}
	if err := doc.GenMarkdownCustom(c, &out, link); err != nil {
		t.Fatalf("make page: %v", err)
	}
	text := out.String()
	if c.HasParent() {
		before, rest, found := strings.Cut(text, "### Options inherited from parent commands")
		if found {
			_, rest, _ = strings.Cut(rest, "### SEE ALSO")
			text = before + "### SEE ALSO" + rest
		}
	}
	return []byte("\n" + strings.TrimRight(text, "\n") + "\n")
}

// rewrite replaces all pages.
func rewrite(t *testing.T, pages map[string][]byte) {
	t.Helper()
	if err := os.RemoveAll(manPages); err != nil {
		t.Fatal(err)
	}
	for name, text := range pages {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
