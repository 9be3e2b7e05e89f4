// Package arch holds the rules of the house that the compiler does not know:
// which package may import which, which one writes a table, how long a file
// may become, what every dependency must say for itself. Each rule is a
// function over a tree of sources; its tests run it over this module, and over
// a small tree with a planted violation that it must find. The package has
// tests only.
package arch

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "github.com/outboxd/outboxd"

// source is one Go or SQL file of the module.
type source struct {
	path string // slash separated, relative to the module's root
	dir  string
	test bool
	text string
	file *ast.File // nil for SQL
}

// tree is every source of one module, without nested modules and testdata.
type tree struct {
	set     *token.FileSet
	sources []source
}

// load parses every source below fsys, whatever its build constraints.
func load(fsys fs.FS) (*tree, error) {
	t := &tree{set: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skip(fsys, name)
		}
		if ext := path.Ext(name); ext == ".go" || ext == ".sql" {
			return t.add(fsys, name)
		}
		return nil
	})
	return t, err
}

// skip leaves out what the go command leaves out.
func skip(fsys fs.FS, dir string) error {
	if dir == "." {
		return nil
	}
	base := path.Base(dir)
	if base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return fs.SkipDir
	}
	if _, err := fs.Stat(fsys, path.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

func (t *tree) add(fsys fs.FS, name string) error {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	s := source{path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), text: string(text)}
	if path.Ext(name) == ".go" {
		s.file, err = parser.ParseFile(t.set, name, text, parser.ParseComments)
		if err != nil {
			return fmt.Errorf("parse %s: %w", name, err)
		}
	}
	t.sources = append(t.sources, s)
	return nil
}

// within says whether dir is one of the roots or lies below one.
func within(dir string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return dir == root || strings.HasPrefix(dir, root+"/")
	})
}

// house is the module that these tests belong to.
func house() fs.FS { return os.DirFS("../..") }

// obeyed fails the test for every place in this module that breaks the rule.
func obeyed(t *testing.T, rule func(*tree) []string) {
	t.Helper()
	sources, err := load(house())
	if err != nil {
		t.Fatal(err)
	}
	if len(sources.sources) < 5 {
		t.Fatalf("found %d sources: the module's root is not where this test looks", len(sources.sources))
	}
	for _, v := range rule(sources) {
		t.Error(v)
	}
}

// planted is a small tree and how a rule must complain about it.
type planted struct {
	name  string
	files map[string]string
	want  []string // what each complaint contains, in order; none = the tree is clean
}

func (p planted) found(t *testing.T, rule func(*tree) []string) {
	t.Helper()
	sources, err := load(files(p.files))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, rule(sources), p.want)
}

func files(content map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, text := range content {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

func expect(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d complaints %q, want %d: %q", len(got), got, len(want), want)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("complaint %d is %q, want it to contain %q", i, got[i], want[i])
		}
	}
}

// sorted removes repetitions, so that the order of files does not matter.
func sorted[T cmp.Ordered](list []T) []T {
	slices.Sort(list)
	return slices.Compact(list)
}

func TestSourcesLeaveOutWhatIsNotOfTheModule(t *testing.T) {
	sources, err := load(files(map[string]string{
		"ledger/ledger.go":     "package ledger",
		"ledger/schema.sql":    "CREATE TABLE x (id)",
		"ledger/testdata/a.go": "not Go",
		"bench/go.mod":         "module bench",
		"bench/main.go":        "not Go",
		".git/a.go":            "not Go",
	}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range sources.sources {
		got = append(got, s.path)
	}
	if want := []string{"ledger/ledger.go", "ledger/schema.sql"}; !slices.Equal(got, want) {
		t.Errorf("loaded %q, want %q", got, want)
	}
}
