package arch

import (
	"fmt"
	"go/ast"
	"path"
	"strconv"
	"strings"
	"testing"
)

const (
	longestFile = 400 // lines
	longestFunc = 60
)

// shape complains about files and functions that no longer fit a reader.
func shape(t *tree) []string {
	var found []string
	for _, s := range t.sources {
		if s.test || s.file == nil {
			continue
		}
		if n := strings.Count(s.text, "\n"); n > longestFile {
			found = append(found, fmt.Sprintf("%s: %d lines, at most %d", s.path, n, longestFile))
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			from, to := t.set.Position(f.Pos()), t.set.Position(f.End())
			if n := to.Line - from.Line + 1; n > longestFunc {
				found = append(found, fmt.Sprintf("%s: %s has %d lines, at most %d", from, f.Name.Name, n, longestFunc))
			}
		}
	}
	return found
}

// packageComments complains about packages that do not say what they decide.
// A package of tests only may say it in a test file.
func packageComments(t *tree) []string {
	commented, product := map[string]bool{}, map[string]bool{}
	for _, s := range t.sources {
		if s.file != nil && !s.test {
			product[s.dir] = true
		}
	}
	for _, s := range t.sources {
		if s.file != nil && (!s.test || !product[s.dir]) {
			commented[s.dir] = commented[s.dir] || s.file.Doc != nil
		}
	}
	var found []string
	for dir, ok := range commented {
		if !ok {
			found = append(found, fmt.Sprintf("%s: no package comment", dir))
		}
	}
	return sorted(found)
}

// sleeps complains about tests that wait by the clock. Only chaos may.
func sleeps(t *tree) []string {
	var found []string
	for _, s := range t.sources {
		if !s.test || s.file == nil || isChaos(s.dir) {
			continue
		}
		clock := importName(s.file, "time")
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == clock {
				found = append(found, fmt.Sprintf("%s: time.Sleep in a test", t.set.Position(n.Pos())))
			}
			return true
		})
	}
	return found
}

// importName returns the name that a file gives to an imported package, "" if
// it does not import it.
func importName(f *ast.File, name string) string {
	for _, spec := range f.Imports {
		if got, err := strconv.Unquote(spec.Path.Value); err != nil || got != name {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(name)
	}
	return ""
}

func TestFilesAndFunctionsFitAReader(t *testing.T) { obeyed(t, shape) }
func TestEveryPackageHasAComment(t *testing.T)     { obeyed(t, packageComments) }
func TestTestsDoNotSleep(t *testing.T)             { obeyed(t, sleeps) }

func TestShapeFindsPlantedViolations(t *testing.T) {
	function := func(lines int) string {
		return "package p\nfunc f() {\n" + strings.Repeat("\t_ = 1\n", lines-2) + "}\n"
	}
	file := func(lines int) string { return "package p\n" + strings.Repeat("\n", lines-1) }
	for _, p := range []planted{
		{"60 lines", map[string]string{"entry/a.go": function(60)}, nil},
		{"61 lines", map[string]string{"entry/a.go": function(61)}, []string{"f has 61 lines"}},
		{"61 lines in a test", map[string]string{"entry/a_test.go": function(61)}, nil},
		{"400 lines", map[string]string{"entry/a.go": file(400)}, nil},
		{"401 lines", map[string]string{"entry/a.go": file(401)}, []string{"entry/a.go: 401 lines"}},
	} {
		t.Run(p.name, func(t *testing.T) { p.found(t, shape) })
	}
}

func TestPackageCommentsFindsPlantedViolations(t *testing.T) {
	for _, p := range []planted{
		{"none", map[string]string{"entry/a.go": "package entry\n"}, []string{"entry: no package comment"}},
		{"in one file", map[string]string{"entry/a.go": "package entry\n", "entry/b.go": "// Package entry is.\npackage entry\n"}, nil},
		{"only in a test", map[string]string{"entry/a.go": "package entry\n", "entry/a_test.go": "// Package entry is.\npackage entry\n"}, []string{"entry"}},
		{"tests only", map[string]string{"entry/a_test.go": "// Package entry is.\npackage entry\n"}, nil},
		{"a directive", map[string]string{"entry/a.go": "//go:build linux\n\npackage entry\n"}, []string{"entry"}},
	} {
		t.Run(p.name, func(t *testing.T) { p.found(t, packageComments) })
	}
}

func TestSleepsFindsPlantedViolations(t *testing.T) {
	const nap = "package p\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"
	for _, p := range []planted{
		{"test", map[string]string{"entry/a_test.go": nap}, []string{"entry/a_test.go:3:12: time.Sleep"}},
		{"renamed", map[string]string{"entry/a_test.go": "package p\nimport clock \"time\"\nvar nap = clock.Sleep\n"}, []string{"time.Sleep"}},
		{"another Sleep", map[string]string{"entry/a_test.go": "package p\nfunc f() { time.Sleep(1) }\n"}, nil},
		{"chaos", map[string]string{"chaos/a_test.go": nap}, nil},
		{"the leaf of chaos", map[string]string{"chaos/point/a_test.go": nap}, []string{"time.Sleep"}},
	} {
		t.Run(p.name, func(t *testing.T) { p.found(t, sleeps) })
	}
}
