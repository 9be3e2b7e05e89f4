package config

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of one reading: of what is listed, and of the keys of a mapping or the
// elements of a list.
const (
	mostProblems = 100
	mostEntries  = 1000
)

// report gathers the problems of one reading. It knows where each key that was
// said stands, and which keys are broken: nothing more is said about those.
type report struct {
	file     string
	at       map[string]place
	broken   []string
	problems []Problem
}

// place is where a key was said: a position in the file, or a variable.
type place struct {
	line, column int
	variable     string
}

func newReport(file string) *report { return &report{file: file, at: map[string]place{}} }

// said reports whether the key stands in the file or the environment.
func (r *report) said(path string) bool {
	_, ok := r.at[path]
	return ok
}

// refuse adds a problem at path, or where the nearest key around it was said.
// It adds none if one of the keys it is about (path, if about is empty) is
// broken already.
func (r *report) refuse(path, found, allowed string, about ...string) {
	if len(about) == 0 {
		about = []string{path}
	}
	for _, key := range about {
		for _, b := range r.broken {
			if under(key, b) || under(b, key) {
				return
			}
		}
	}
	r.refuseAt(r.nearest(path), path, found, allowed)
}

func (r *report) refuseAt(p place, path, found, allowed string) {
	if r.full() {
		return
	}
	problem := Problem{File: r.file, Line: p.line, Column: p.column, Path: path, Found: found, Allowed: allowed}
	if p.variable != "" {
		problem.File, problem.Path = environment, p.variable+" ("+path+")"
	}
	r.problems = append(r.problems, problem)
}

// full reports whether so much is wrong that the rest is not looked at.
func (r *report) full() bool { return len(r.problems) >= mostProblems }

func (r *report) nearest(path string) place {
	for path != "" {
		if p, ok := r.at[path]; ok {
			return p
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return r.at[""]
}

// under reports whether key is parent or lies in it.
func under(key, parent string) bool {
	rest, ok := strings.CutPrefix(key, parent)
	return ok && (rest == "" || parent == "" || rest[0] == '.' || rest[0] == '[')
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func placeOf(n *yaml.Node) place { return place{line: n.Line, column: n.Column} }

// field is one key of a mapping.
type field struct {
	typ reflect.Type
	tag reflect.StructTag
}

// fieldsOf returns the keys of a struct in the order of its fields.
func fieldsOf(t reflect.Type) (names []string, fields map[string]field) {
	fields = make(map[string]field, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		if name := f.Tag.Get("key"); name != "" {
			names = append(names, name)
			fields[name] = field{typ: f.Type, tag: f.Tag}
		}
	}
	return names, fields
}
