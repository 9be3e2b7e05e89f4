package arch

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

const dependenciesPage = "docs/decisions/dependencies.md"

// dependencies compares the direct requirements of go.mod with the rows of the
// page that explains them, both ways.
func dependencies(fsys fs.FS) ([]string, error) {
	mod, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return nil, err
	}
	page, err := fs.ReadFile(fsys, dependenciesPage)
	if err != nil {
		return nil, err
	}
	required, explained := direct(string(mod)), rows(string(page))
	var found []string
	for _, name := range required {
		if !slices.Contains(explained, name) {
			found = append(found, fmt.Sprintf("go.mod requires %s, %s does not say why", name, dependenciesPage))
		}
	}
	for _, name := range explained {
		if !slices.Contains(required, name) {
			found = append(found, fmt.Sprintf("%s explains %s, go.mod does not require it", dependenciesPage, name))
		}
	}
	return found, nil
}

// direct returns the modules that a go.mod requires without "// indirect".
func direct(mod string) []string {
	var names []string
	inside := false
	for line := range strings.Lines(mod) {
		line = strings.TrimSpace(line)
		rest, single := strings.CutPrefix(line, "require ")
		switch {
		case line == "require (":
			inside = true
		case line == ")":
			inside = false
		case (inside || single) && !strings.HasSuffix(line, "// indirect"):
			if fields := strings.Fields(rest); len(fields) >= 2 {
				names = append(names, fields[0])
			}
		}
	}
	return names
}

// rows returns the modules that a Markdown table names in its first column.
func rows(page string) []string {
	var names []string
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			if name, purpose, ok := strings.Cut(rest, "` |"); ok && strings.Trim(purpose, " |\n") != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

func TestEveryDirectDependencyIsExplained(t *testing.T) {
	found, err := dependencies(house())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
}

func TestDependenciesFindsPlantedViolations(t *testing.T) {
	const mod = "module m\n\ngo 1.26\n\nrequire a.example/one v1.0.0\n\nrequire (\n\tb.example/two v1.0.0\n\tc.example/three v1.0.0 // indirect\n)\n"
	for _, c := range []struct {
		name, page string
		want       []string
	}{
		{"all", "| module | for |\n|---|---|\n| `a.example/one` | x |\n| `b.example/two` | y |\n", nil},
		{"one is missing", "| `a.example/one` | x |\n", []string{"requires b.example/two"}},
		{"one says nothing", "| `a.example/one` | x |\n| `b.example/two` | |\n", []string{"requires b.example/two"}},
		{"one is stale", "| `a.example/one` | x |\n| `b.example/two` | y |\n| `d.example/four` | z |\n", []string{"explains d.example/four"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := dependencies(files(map[string]string{"go.mod": mod, dependenciesPage: c.page}))
			if err != nil {
				t.Fatal(err)
			}
			expect(t, got, c.want)
		})
	}
}
