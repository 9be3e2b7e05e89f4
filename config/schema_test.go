package config

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// patterns of what is written as text.
var patterns = map[reflect.Type]string{
	durationType: `^([0-9]+(\.[0-9]+)?|\.[0-9]+)(h|m|s|ms|us|µs|ns)(([0-9]+(\.[0-9]+)?|\.[0-9]+)(h|m|s|ms|us|µs|ns))*$`,
	modeType:     octalMode.String(),
	rateType:     rateText.String(),
}

// schemaOf is the schema of one value. Keys that are not offered are not in it.
func (d described) schemaOf(m member) map[string]any {
	s := map[string]any{}
	if m.doc != "" {
		s["description"] = m.doc + rangeOf(m)
	}
	if preset := m.preset(); preset != nil {
		s["default"] = preset
	}
	if pattern, ok := patterns[m.typ]; ok {
		s["type"], s["pattern"] = "string", pattern
		return s
	}
	words := offeredWords(m.path, strings.Fields(m.tag.Get("words")))
	switch m.typ.Kind() {
	case reflect.Slice:
		s["type"] = "array"
		s["items"] = d.schemaOf(member{path: m.path + "[]", typ: m.typ.Elem(), tag: m.tag})
	case reflect.Struct:
		return d.mappingSchema(m, s, words)
	case reflect.Bool:
		s["type"] = "boolean"
	case reflect.Int, reflect.Float64:
		s["type"] = map[bool]string{true: "integer", false: "number"}[m.typ.Kind() == reflect.Int]
		low, high, _ := strings.Cut(m.tag.Get("range"), "-")
		s["minimum"], s["maximum"] = json.Number(low), json.Number(high)
	default:
		s["type"] = "string"
		if len(words) > 0 {
			s["enum"] = words
		}
	}
	return s
}

// mappingSchema adds the keys. A section may also be empty, and some mappings have a
// word that stands for them.
func (d described) mappingSchema(m member, s map[string]any, words []string) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, sub := range d.members(m.typ, m.path, m.value) {
		if !offered(sub.path) {
			continue
		}
		properties[sub.name] = d.schemaOf(sub)
		if sub.tag.Get("must") != "" {
			required = append(required, sub.name)
		}
	}
	keys := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		keys["required"] = required
	}
	var short map[string]any
	switch {
	case m.path != "" && !strings.ContainsAny(m.path, ".["):
		short = map[string]any{"type": "null"}
	case m.typ == envVarType:
		short = map[string]any{"type": "string"}
	case len(words) > 0:
		short = map[string]any{"enum": words}
	default:
		for key, value := range keys {
			s[key] = value
		}
		return s
	}
	s["anyOf"] = []any{short, keys}
	return s
}

func rangeOf(m member) string {
	if low, high, ok := strings.Cut(m.tag.Get("range"), "-"); ok {
		return " (" + low + " to " + high + ")"
	}
	return ""
}

func generated(t *testing.T) []byte {
	t.Helper()
	s := describe(t).schemaOf(member{typ: reflect.TypeFor[Config](), value: reflect.ValueOf(Default())})
	s["$schema"], s["title"] = "https://json-schema.org/draft/2020-12/schema", "outboxd.yaml"
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	to.SetIndent("", "  ")
	if err := to.Encode(s); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

// current compares a file that is made from the types, or writes it.
func current(t *testing.T, file string, want []byte) {
	t.Helper()
	if *Update {
		if err := os.WriteFile(file, want, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the types say (%v): go test ./config -update writes it", file, err)
	}
}

func TestSchemaIsCurrent(t *testing.T) {
	want := generated(t)
	current(t, "outboxd.schema.json", want)
	current(t, "../docs/outboxd.schema.json", want)
}

// accepts reports what an editor would say of a file.
func accepts(t *testing.T, text string) error {
	t.Helper()
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(generated(t)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource("outboxd.schema.json", schema); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("outboxd.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var file any
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	return compiled.Validate(instance)
}

func TestSchemaAcceptsTheExampleAndWhatItShows(t *testing.T) {
	example, err := os.ReadFile("../examples/outboxd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{
		string(example), "log:\nworker: {}\n", "lease: {ttl: 1m30s}\n",
		"tools:\n  - {name: a, rate: 5/h, breaker: off, exec: {argv: [x], env: [PATH, {name: A, value: b}], umask: \"0000\"}}\n",
	} {
		if err := accepts(t, text); err != nil {
			t.Errorf("text %d: %v", i, err)
		}
	}
}

func TestSchemaRefusesWhatAnEditorCanSee(t *testing.T) {
	for _, text := range []string{
		"wroker: {}", "worker: {concurency: 3}", "worker: {concurrency: 0}", "worker: {concurrency: 1.5}", "worker: {exclusive: \"no\"}",
		"lease: {ttl: 30}", "lease: {ttl: \"30\"}", "lease: {ttl: 1d}", "log: {level: loud}", "listen: {socket_mode: 640}", "retry: {factor: 0.5}",
		"tools: {a: {}}", "tools: [{exec: {argv: [x]}}]", "tools: [{name: a, exec: {}}]", "tools: [{name: 7, exec: {argv: [x]}}]",
		"tools: [{name: a, http: {url: x, headers: [{vlaue: b}]}}]", "tools: [{name: a, rate: 20, exec: {argv: [x]}}]",
		"tools: [{name: a, breaker: on, exec: {argv: [x]}}]", "tools: [{name: a, breaker: {window: 1m}, exec: {argv: [x]}}]",
		"principals: [{name: a, may_submit: []}]",
	} {
		if accepts(t, text) == nil {
			t.Errorf("%s: accepted", text)
		}
	}
}

// Every key and every default of the schema is one of the loader's.
func TestSchemaDefaultsLoad(t *testing.T) {
	for _, section := range describe(t).members(reflect.TypeFor[Config](), "", reflect.ValueOf(Default())) {
		if !isMapping(section.typ) {
			continue
		}
		var text strings.Builder
		text.WriteString(section.name + ":\n")
		for _, key := range describe(t).members(section.typ, section.name, section.value) {
			if preset := key.preset(); preset != nil && offered(key.path) {
				value, err := json.Marshal(preset)
				if err != nil {
					t.Fatal(err)
				}
				text.WriteString("  " + key.name + ": " + string(value) + "\n")
			}
		}
		c, err := Parse("c.yaml", []byte(text.String()), nil)
		if err != nil || !reflect.DeepEqual(*c, Default()) {
			t.Errorf("the defaults as a file do not come to the defaults: %v\n%s", err, text.String())
		}
	}
}
