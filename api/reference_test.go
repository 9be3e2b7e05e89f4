package api

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of codes into the reference")

const (
	reference  = "../docs/reference/api.md"
	codesBegin = "<!-- codes: made by go test ./api -run Reference -update -->\n"
	codesEnd   = "<!-- end of codes -->\n"
)

var routePattern = regexp.MustCompile(`"((?:GET|POST|PUT|DELETE) /[^"]*)"`)

// TestReferenceHasEveryRouteAndCode: each route of the source has a section, and no
// section has no route; the table of codes is the one that answers are made from.
func TestReferenceHasEveryRouteAndCode(t *testing.T) {
	page, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := bytes.Cut(page, []byte(codesBegin))
	_, after, ended := bytes.Cut(rest, []byte(codesEnd))
	if !found || !ended {
		t.Fatalf("%s has no table of codes", reference)
	}
	want := slices.Concat(before, []byte(codesBegin), []byte(codeTable()), []byte(codesEnd), after)
	if *update {
		if err := os.WriteFile(reference, want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(page, want) {
		t.Errorf("the table of codes in %s is old: go test ./api -run Reference -update", reference)
	}
	described := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "### `"); ok {
			described[strings.TrimSuffix(name, "`")] = true
		}
	}
	for _, route := range routes(t) {
		if !described[route] {
			t.Errorf("%s does not describe %s", reference, route)
		}
		delete(described, route)
	}
	for route := range described {
		t.Errorf("%s describes %s, which is no route", reference, route)
	}
}

// routes lists the patterns in the sources of this package.
func routes(t *testing.T) (list []string) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range routePattern.FindAllSubmatch(text, -1) {
			list = append(list, string(m[1]))
		}
	}
	return list
}

func codeTable() string {
	var b strings.Builder
	b.WriteString("| code | HTTP | gate | meaning |\n|---|---|---|---|\n")
	for _, code := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[code]
		fmt.Fprintf(&b, "| `%s` | %d %s | %s | %s |\n", code, k.status, http.StatusText(k.status), k.gate, strings.ReplaceAll(k.detail, "|", `\|`))
	}
	return b.String()
}
