package config

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const preamble = `# Configuration

Made from the types of package config: ` + "`go test ./config -update`" + ` writes it, a test compares it. A commented file is [examples/outboxd.yaml](../../examples/outboxd.yaml); for editors there is a [JSON Schema](../outboxd.schema.json), which ` + "`outboxd config schema`" + ` prints too: ` + "`# yaml-language-server: $schema=outboxd.schema.json`" + ` at the top of a file names it.

- The file is one YAML document in UTF-8 of at most 1 MiB. Aliases, tags and merge keys are refused; so are unknown keys, a key said twice, and a value of another type: ` + "`no`" + ` is not false, a mode is a quoted octal string, a name that looks like a number or a date needs quotes.
- A duration needs a unit: ` + "`500ms`, `30s`, `10m`, `72h`" + `. There is no day.
- ` + "`outboxd config check`" + ` tells every problem at once, with file, line, column, what was found and what is allowed, and ends with exit status 78.
- A single value outside lists can come from the environment, which wins: ` + "`OUTBOXD_`" + ` and the path in upper case with ` + "`_`" + `, as in ` + "`OUTBOXD_WORKER_POLL_INTERVAL=500ms`" + `. An empty variable counts as not set.
- SIGHUP, ` + "`outboxd config reload`" + ` and a change of the file reload it, however the file was replaced. What is wrong changes nothing and is told in the log, the status of the service and ` + "`outboxd_config_reload_failing`" + `. A changed file is taken once it has not changed for a quarter of a second; one that is broken, whose last line does not end, or that lost much of its end is looked at again after two seconds. One that lost a tool or a principal, or the end of its last line, is told and not taken: it may be half written. If it is meant, ` + "`outboxd config reload`" + ` takes it.
- database, listen, log, worker (but per_tool) and lease take effect at the next start only.

Keys in bold have to be said.
`

// reference is the document, a table for each mapping.
func reference(t *testing.T) []byte {
	t.Helper()
	d := describe(t)
	var doc bytes.Buffer
	doc.WriteString(preamble)
	d.table(&doc, member{typ: reflect.TypeFor[Config](), value: reflect.ValueOf(Default())}, map[reflect.Type]string{})
	return doc.Bytes()
}

// table writes the keys of a mapping, then the tables of the mappings in it, each
// type once.
func (d described) table(doc *bytes.Buffer, of member, seen map[reflect.Type]string) {
	keys := d.members(of.typ, of.path, of.value)
	if of.path == "" {
		doc.WriteString("\n## Sections\n")
	} else {
		fmt.Fprintf(doc, "\n## %s\n\n%s\n", of.path, d.about(of.typ))
	}
	doc.WriteString("\n| key | value | default | |\n|---|---|---|---|\n")
	var inner []member
	for _, key := range keys {
		name := "`" + key.name + "`"
		if key.tag.Get("must") != "" {
			name = "**" + name + "**"
		}
		fmt.Fprintf(doc, "| %s | %s | %s | %s |\n", name, d.valueOf(key, seen), presetOf(key), escaped(key))
		item := key
		if key.typ.Kind() == reflect.Slice {
			item = member{path: key.path + "[]", typ: key.typ.Elem()}
		}
		if _, told := seen[item.typ]; isMapping(item.typ) && !told {
			seen[item.typ] = item.path
			inner = append(inner, item)
		}
	}
	for _, item := range inner {
		d.table(doc, item, seen)
	}
}

func escaped(m member) string {
	text := strings.ReplaceAll(m.doc, "|", `\|`)
	if !offered(m.path) {
		text = "(not available in this version) " + text
	}
	return text
}

func presetOf(m member) string {
	preset := m.preset()
	switch {
	case preset == nil:
		return ""
	case m.typ == modeType:
		return fmt.Sprintf("`%q`", preset)
	case m.typ.Kind() == reflect.Slice:
		return fmt.Sprintf("`[%s]`", strings.Trim(fmt.Sprint(preset), "[]"))
	}
	return fmt.Sprintf("`%v`", preset)
}

// valueOf says what may stand there.
func (d described) valueOf(m member, seen map[reflect.Type]string) string {
	var parts []string
	for _, word := range offeredWords(m.path, strings.Fields(m.tag.Get("words"))) {
		parts = append(parts, "`"+word+"`")
	}
	low, high, ranged := strings.Cut(m.tag.Get("range"), "-")
	limits := ""
	if ranged {
		limits = ", " + low + " to " + high
	}
	typ, list := m.typ, ""
	if typ.Kind() == reflect.Slice {
		typ, list = typ.Elem(), "list: "
	}
	switch {
	case isMapping(typ):
		path := m.path
		if list != "" {
			path += "[]"
		}
		if told, ok := seen[typ]; ok {
			path = told
		}
		parts = append(parts, fmt.Sprintf("[mapping](#%s)", anchor(path)))
		if typ == envVarType {
			parts = append(parts, "a name")
		}
	case typ == durationType:
		parts = append(parts, "duration"+limits)
	case typ == modeType:
		parts = append(parts, "quoted octal mode")
	case typ == rateType:
		parts = append(parts, "`N/s`, `N/m` or `N/h`")
	case typ.Kind() == reflect.Bool:
		parts = append(parts, "`true`, `false`")
	case typ.Kind() == reflect.Int, typ.Kind() == reflect.Float64:
		parts = append(parts, "number"+limits)
	case len(parts) == 0:
		parts = append(parts, "text")
	}
	return list + strings.Join(parts, ", ")
}

// anchor is what a heading is called in a link.
func anchor(path string) string {
	return strings.NewReplacer(".", "", "[", "", "]", "").Replace(path)
}

func TestReferenceIsCurrent(t *testing.T) {
	current(t, "../docs/reference/config.md", reference(t))
}

// every calls fn for each key of each kind of mapping, once.
func every(t *testing.T, fn func(of reflect.Type, key member)) {
	d, seen := describe(t), map[reflect.Type]bool{}
	var walk func(of reflect.Type, path string)
	walk = func(of reflect.Type, path string) {
		for _, key := range d.members(of, path, reflect.Value{}) {
			fn(of, key)
			inner, at := key.typ, key.path
			if inner.Kind() == reflect.Slice {
				inner, at = inner.Elem(), at+"[]"
			}
			if isMapping(inner) && !seen[inner] {
				seen[inner] = true
				walk(inner, at)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
}

// Every key is told what it is for.
func TestEveryKeyIsDescribed(t *testing.T) {
	obvious := []string{
		"Header.name", "Header.value", "EnvVar.name", "Provider.provider", "Provider.api_family", "Provider.adapter_revision",
		"Revisions.input", "Revisions.output", "Revisions.effect", "Revisions.handler", "Revisions.producer", "Revisions.policy", "Retry.backoff",
	}
	every(t, func(of reflect.Type, key member) {
		if key.doc == "" && !slices.Contains(obvious, of.Name()+"."+key.name) {
			t.Errorf("%s (%s) has no comment that says what it is for", key.path, of.Name())
		}
	})
}

// The example shows every key that is offered, at work or in a comment.
func TestExampleShowsEveryKey(t *testing.T) {
	example, err := os.ReadFile("../examples/outboxd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	every(t, func(_ reflect.Type, key member) {
		for _, parent := range later {
			if under(index.ReplaceAllString(key.path, "[]"), parent) {
				return
			}
		}
		if !regexp.MustCompile(`(?m)\b` + key.name + `(:|,|$)`).Match(example) {
			t.Errorf("the example does not show %s", key.path)
		}
	})
}
