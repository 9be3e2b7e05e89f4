package config

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// environment stands in a Problem for the file.
const environment = "environment"

const prefix = "OUTBOXD_"

// environment checks the variables that set scalars and returns their values by
// viper's path. A variable that begins like a section, or nearly is a setting,
// and names none is refused; others with the prefix are not ours.
func (r *report) environment(env []string) map[string]any {
	known := bindings(reflect.TypeFor[Config](), "", map[string]binding{})
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, strings.ToLower(strings.TrimPrefix(name, prefix)))
	}
	slices.Sort(names)
	overrides := map[string]any{}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, prefix) || value == "" {
			continue
		}
		if b, ok := known[name]; ok {
			r.override(name, value, b, overrides)
		} else {
			r.stranger(name, names)
		}
	}
	return overrides
}

// Strangers are the variables that begin like ours, set nothing and were not refused:
// most likely somebody means something with them. Their values are not looked at.
func Strangers(env []string) []string {
	known := bindings(reflect.TypeFor[Config](), "", map[string]binding{})
	var names []string
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if _, ok := known[name]; !ok && strings.HasPrefix(name, prefix) && value != "" {
			names = append(names, clip(name))
		}
	}
	return names
}

// binding is the setting behind a variable.
type binding struct {
	path string
	field
}

// bindings maps the variable's name to each scalar that is not in a list.
func bindings(t reflect.Type, path string, into map[string]binding) map[string]binding {
	names, fields := fieldsOf(t)
	for _, name := range names {
		f, at := fields[name], join(path, name)
		if !offered(at) {
			continue
		}
		switch f.typ.Kind() {
		case reflect.Struct:
			bindings(f.typ, at, into)
		case reflect.Slice, reflect.Pointer:
		default:
			into[variable(at)] = binding{path: at, field: f}
		}
	}
	return into
}

func variable(path string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// override reads a variable as the file's value would be read, text needing no quotes.
func (r *report) override(name, value string, b binding, into map[string]any) {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
	switch b.typ.Kind() {
	case reflect.Bool, reflect.Float64, reflect.Int:
	default:
		n.Tag, n.Style = "!!str", yaml.DoubleQuotedStyle
	}
	r.at[b.path] = place{variable: name}
	r.broken = slices.DeleteFunc(r.broken, func(key string) bool { return key == b.path })
	if !r.value(n, b.typ, b.tag, b.path) {
		return
	}
	var decoded any
	if err := n.Decode(&decoded); err != nil {
		r.breaks(b.path, "text", "a plain value")
		return
	}
	into[strings.ReplaceAll(b.path, ".", keyDelimiter)] = decoded
}

// stranger refuses a variable that was surely meant for us.
func (r *report) stranger(name string, names []string) {
	word := strings.ToLower(strings.TrimPrefix(name, prefix))
	first, _, _ := strings.Cut(word, "_")
	sections, _ := fieldsOf(reflect.TypeFor[Config]())
	section := slices.Contains(sections, first)
	allowed := prefix + " and the path of a single value outside lists, for example " + variable("worker.poll_interval")
	near := suggest(word, names)
	slip := near != "" && distance(word, near) <= 2
	if slip {
		allowed = "did you mean " + variable(near) + "?"
	}
	if section || slip {
		r.refuseAt(place{variable: clip(name)}, "no such setting", "an unknown variable", allowed)
	}
}
