package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// described are the comments of the types and of their fields.
type described struct {
	types  map[string]string
	fields map[string]string // by Type.Field
}

// describe reads the comments where the types are declared.
func describe(t *testing.T) described {
	t.Helper()
	d := described{map[string]string{}, map[string]string{}}
	for _, file := range []string{"config.go", "tool.go", "terms.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			types, ok := decl.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE {
				continue
			}
			spec := types.Specs[0].(*ast.TypeSpec)
			d.types[spec.Name.Name] = joined(types.Doc)
			if body, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range body.Fields.List {
					d.fields[spec.Name.Name+"."+field.Names[0].Name] = joined(field.Comment)
				}
			}
		}
	}
	return d
}

func joined(c *ast.CommentGroup) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(c.Text(), "\n", " ")), " ")
}

// about is what a type is, without what only Go programs need.
func (d described) about(t reflect.Type) string {
	text, _, _ := strings.Cut(d.types[t.Name()], " In a Config ")
	return text
}

// member is one key of a mapping.
type member struct {
	name, path, doc string
	typ             reflect.Type // never a pointer
	tag             reflect.StructTag
	value           reflect.Value // the default; zero where there is none
}

// members are the keys of a mapping that stands at path. defaults is its value in
// Default, or not valid.
func (d described) members(t reflect.Type, path string, defaults reflect.Value) (all []member) {
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("key")
		if name == "" {
			continue
		}
		m := member{name: name, path: join(path, name), doc: d.fields[t.Name()+"."+f.Name], typ: f.Type, tag: f.Tag}
		if defaults.IsValid() {
			m.value = defaults.Field(i)
		}
		if m.typ.Kind() == reflect.Pointer {
			m.typ, m.value = m.typ.Elem(), reflect.Value{}
		}
		if of := m.typ; m.doc == "" {
			if of.Kind() == reflect.Slice {
				of = of.Elem()
			}
			m.doc = d.about(of)
		}
		all = append(all, m)
	}
	return all
}

// isMapping: a mapping with keys of its own.
func isMapping(t reflect.Type) bool { return t.Kind() == reflect.Struct && t != rateType }

// preset is the default of a key as JSON and YAML have it; nil: none, or none that
// a file could say.
func (m member) preset() any {
	v := m.value
	if !v.IsValid() || isMapping(m.typ) {
		return nil
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return brief(x)
	case bool:
		return x
	}
	switch {
	case m.typ == modeType:
		return "0" + strconv.FormatUint(v.Uint(), 8)
	case v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0:
		return nil
	}
	return v.Interface()
}
