package config

import (
	"cmp"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strings"
)

// Setting is one value of a config as it is in force. No part of it holds a secret:
// of a URL it has scheme and host, of headers, variables, arguments and statements
// nothing.
type Setting struct {
	Path   string // such as tools[0].retry.max
	Value  string
	Origin string // "" where that is not known; else the file with line and column, a variable of the environment, "default", or the setting that it follows from
}

// Settings lists what the content of a file and the environment come to, as Parse
// does. What is empty and was not said is left out.
func Settings(name string, data []byte, env []string) ([]Setting, error) {
	c, r, err := parse(name, data, env)
	if err != nil {
		return nil, err
	}
	return listed(c, r), nil
}

// Settings lists what a config comes to, without the origins.
func (c *Config) Settings() []Setting {
	all := listed(c, newReport(""))
	for i := range all {
		all[i].Origin = ""
	}
	return all
}

func listed(c *Config, r *report) []Setting {
	s := settings{r: r}
	s.mapping(reflect.ValueOf(*c), "")
	return s.all
}

type settings struct {
	r   *report // what was said, and where
	all []Setting
}

func (s *settings) mapping(v reflect.Value, path string) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if name := f.Tag.Get("key"); name != "" && offered(join(path, name)) {
			s.value(v.Field(i), f.Tag, join(path, name))
		}
	}
}

func (s *settings) value(v reflect.Value, tag reflect.StructTag, path string) {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	empty := v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0
	switch {
	case empty && v.Kind() != reflect.Bool && (!s.r.said(path) || v.Type() == durationType): // a resolved one stands elsewhere
	case v.Type() == breakerType && empty, v.Type() == budgetType && empty:
		s.add(path, "off")
	case v.Kind() == reflect.Struct && v.Type() != rateType:
		s.mapping(v, path)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		for i := range v.Len() {
			s.mapping(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case tag.Get("secret") != "":
		s.add(path, masked(v))
	default:
		s.add(path, written(v))
	}
}

func (s *settings) add(path, value string) {
	s.all = append(s.all, Setting{Path: path, Value: value, Origin: s.origin(path)})
}

// masked says that there is a value; of a URL also whose.
func masked(v reflect.Value) string {
	if v.Kind() == reflect.Slice {
		return fmt.Sprintf("(%d values, not shown)", v.Len())
	}
	u, err := url.Parse(placeholder.ReplaceAllString(v.String(), "x"))
	if err != nil || u.Hostname() == "" {
		return "(not shown)"
	}
	host := u.Scheme + "://" + u.Host
	if u.Path == "" && u.RawQuery == "" && u.User == nil {
		return host
	}
	return host + "/... (not shown)"
}

// written is a value as the file would have it.
func written(v reflect.Value) string {
	if v.Kind() == reflect.Slice {
		items := make([]string, v.Len())
		for i := range items {
			items[i] = written(v.Index(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	switch {
	case v.Type() == modeType:
		return fmt.Sprintf("%04o", v.Uint())
	case v.Type() == rateType:
		rate, _ := v.Interface().(Rate)
		return fmt.Sprintf("%d per %s", rate.Events, brief(rate.Per))
	case v.Kind() == reflect.String:
		return clip(v.String())
	}
	return shown(v)
}

// follows are the settings that follow from another where they were not said.
var follows = []struct{ path, from string }{
	{"lease.heartbeat", "lease.ttl"},
	{"worker.per_tool", "worker.concurrency"},
	{"tools[].concurrency", "worker.per_tool"},
	{"tools[].query.timeout", "tools[].timeout"},
	{"tools[].query.not_before", "tools[].timeout"},
	{"tools[].guards[].timeout", "tools[].timeout"},
}

var toolRetry = regexp.MustCompile(`^tools\[[0-9]+\]\.(retry\..+)$`)

func (s *settings) origin(path string) string {
	if p, ok := s.r.at[path]; ok {
		return s.place(p)
	}
	for _, target := range []string{"http", "exec", "sql"} {
		if parent, ok := strings.CutSuffix(path, ".timeout"); ok && s.r.said(join(parent, target+".timeout")) {
			return s.place(s.r.at[join(parent, target+".timeout")])
		}
	}
	if m := toolRetry.FindStringSubmatch(path); m != nil {
		return "from " + m[1]
	}
	for _, f := range follows {
		if f.path == index.ReplaceAllString(path, "[]") {
			first := index.FindString(path)
			return "from " + strings.Replace(f.from, "[]", cmp.Or(first, "[]"), 1)
		}
	}
	return "default"
}

func (s *settings) place(p place) string {
	if p.variable != "" {
		return environment + " " + p.variable
	}
	return fmt.Sprintf("%s:%d:%d", s.r.file, p.line, p.column)
}
