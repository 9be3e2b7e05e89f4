package arch

import (
	"fmt"
	"go/ast"
	"io/fs"
	"regexp"
	"testing"
)

const guaranteesPage = "docs/guarantees.md"

var testName = regexp.MustCompile(`\bTest[A-Z]\w*`)

// guarantees finds the tests that the page of promises names and nobody wrote.
func guarantees(fsys fs.FS) ([]string, error) { return named(fsys, guaranteesPage) }

// named finds the tests that a page names and nobody wrote.
func named(fsys fs.FS, path string) ([]string, error) {
	page, err := fs.ReadFile(fsys, path)
	if err != nil {
		return nil, err
	}
	t, err := load(fsys)
	if err != nil {
		return nil, err
	}
	written := map[string]bool{}
	for _, s := range t.sources {
		if !s.test {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				written[f.Name.Name] = true
			}
		}
	}
	var found []string
	for _, name := range testName.FindAllString(string(page), -1) {
		if !written[name] {
			found = append(found, fmt.Sprintf("%s names %s, which is no test", path, name))
		}
	}
	return found, nil
}

func TestEveryPromiseHasItsTest(t *testing.T) {
	found, err := guarantees(house())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
}

func TestGuaranteesFindsPlantedViolations(t *testing.T) {
	got, err := guarantees(files(map[string]string{
		guaranteesPage: "- shown by TestThere and TestGone",
		"a/a_test.go":  "package a\n\nfunc TestThere(t *testing.T) {}\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got, []string{"names TestGone"})
}
