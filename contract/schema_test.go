package contract_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
)

const refundSchema = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"type": "object", "additionalProperties": false, "required": ["order", "amount"],
	"properties": {
		"order": {"type": "string", "pattern": "^[0-9]+$"},
		"amount": {"type": "integer", "minimum": 1, "maximum": 100000},
		"currency": {"enum": ["EUR", "SEK"]},
		"lines": {"type": "array", "items": {"$ref": "#/$defs/line"}, "maxItems": 2}
	},
	"$defs": {"line": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string", "minLength": 2}}}}
}`

func schema(t testing.TB, text string) *contract.Schema {
	t.Helper()
	s, err := contract.NewSchema([]byte(text))
	if err != nil {
		t.Fatalf("NewSchema: %v", err)
	}
	return s
}

func TestSchemaNamesWhatDoesNotFitAndNoValue(t *testing.T) {
	s := schema(t, refundSchema)
	for _, c := range []struct{ name, value, path, what string }{
		{"fits", `{"amount":5,"order":"17"}`, "", ""},
		{"fits with all", `{"amount":5,"currency":"SEK","lines":[{"sku":"ab"}],"order":"17"}`, "", ""},
		{"another type", `{"amount":"secret","order":"17"}`, "arguments/amount", "type string"},
		{"absent", `{"amount":5}`, "arguments/order", "absent"},
		{"one too many", `{"amount":5,"order":"17","a/b~":"secret"}`, "arguments/a~1b~0", "no member"},
		{"not in the enum", `{"amount":5,"currency":"secret","order":"17"}`, "arguments/currency", "another value"},
		{"pattern", `{"amount":5,"order":"secret"}`, "arguments/order", "pattern"},
		{"too small", `{"amount":0,"order":"17"}`, "arguments/amount", "too small"},
		{"too large", `{"amount":100001,"order":"17"}`, "arguments/amount", "too large"},
		{"no integer", `{"amount":1.5,"order":"17"}`, "arguments/amount", "type number"},
		{"deep", `{"amount":5,"lines":[{"sku":"ab"},{"sku":"a"}],"order":"17"}`, "arguments/lines/1/sku", "1 characters"},
		{"too many", `{"amount":5,"lines":[{"sku":"ab"},{"sku":"ab"},{"sku":"ab"}],"order":"17"}`, "arguments/lines", "does not fit"},
		{"no object", `[]`, "arguments", "type array"},
		{"nothing", ``, "arguments", "type null"},
	} {
		list := s.Check("arguments", []byte(c.value))
		if c.path == "" {
			if len(list) > 0 {
				t.Errorf("%s: got %v, want none", c.name, list)
			}
			continue
		}
		if len(list) != 1 || list[0].Path != c.path || !strings.Contains(list[0].What, c.what) || list[0].Allowed == "" {
			t.Errorf("%s: got %+v, want %s: %s", c.name, list, c.path, c.what)
		}
		for _, p := range list {
			if strings.Contains(p.Error(), "secret") {
				t.Errorf("%s: a value is told: %v", c.name, &p)
			}
		}
	}
}

func TestSchemaTellsNoMoreThanTwentyProblems(t *testing.T) {
	s := schema(t, `{"items": {"type": "integer"}}`)
	if got := len(s.Check("a", []byte(`["",""`+strings.Repeat(`,""`, 100)+`]`))); got != 20 {
		t.Errorf("got %d problems, want 20", got)
	}
}

func TestNoSchemaTakesEverything(t *testing.T) {
	var s *contract.Schema
	if list := s.Check("arguments", []byte(`{"a":1}`)); list != nil {
		t.Errorf("got %v, want nothing", list)
	}
}

func TestSchemaThatCannotBeRightIsRefusedAtLoad(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret.json")
	if err := os.WriteFile(secret, []byte(`{"type":"string"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"no JSON":              `{`,
		"a member twice":       `{"type":"object","type":"array"}`,
		"no such type":         `{"type":"objekt"}`,
		"a broken pattern":     `{"pattern":"("}`,
		"a reference to disk":  `{"$ref":"file://` + secret + `"}`,
		"a reference to a net": `{"$ref":"http://127.0.0.1:9/schema.json"}`,
		"a dangling reference": `{"$ref":"#/$defs/none"}`,
		"a number":             `7`,
	} {
		if _, err := contract.NewSchema([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestSchemaIsPartOfTheRevisionAndSpacingIsNot(t *testing.T) {
	dir := t.TempDir()
	with := func(input, output string) contract.Revisions {
		tool := refund()
		tool.Revisions = config.Revisions{}
		for _, f := range []struct {
			text string
			to   *string
		}{{input, &tool.InputSchema}, {output, &tool.OutputSchema}} {
			if f.text == "" {
				continue
			}
			*f.to = filepath.Join(dir, "s.json")
			if err := os.WriteFile(*f.to, []byte(f.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, _ := register(t, tool).Lookup(tool.Name)
		return r.Revisions
	}
	none, spaced := with("", ""), with(`{ "type":"object" }`, "")
	if got := none.Differ(with(`{"type":"object"}`, "")); got != "input_revision" {
		t.Errorf("a schema for arguments changes %q, want input_revision", got)
	}
	if got := none.Differ(with("", `{"type":"object"}`)); got != "output_revision" {
		t.Errorf("a schema for results changes %q, want output_revision", got)
	}
	if got := spaced.Differ(with(`{"type":"object"}`, "")); got != "" {
		t.Errorf("white space changes %q", got)
	}
	if got := spaced.Differ(with(`{"type":"array"}`, "")); got != "input_revision" {
		t.Errorf("another schema changes %q, want input_revision", got)
	}
}

func TestSchemaFileThatIsNotThereIsToldWithoutItsPath(t *testing.T) {
	tool := refund()
	tool.InputSchema = filepath.Join(t.TempDir(), "secret-name.json")
	_, err := contract.NewRegistry([]config.Tool{tool})
	var wrong *contract.InputError
	if !errors.As(err, &wrong) || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "input_schema") {
		t.Errorf("got %v, want input_schema and no path", err)
	}
}

func TestGuardsAndApprovalArePartOfThePolicy(t *testing.T) {
	policy := func(change func(*config.Tool)) string {
		tool := refund()
		tool.Revisions = config.Revisions{}
		change(&tool)
		r, _ := register(t, tool).Lookup(tool.Name)
		return r.Revisions.Policy
	}
	static := func(roles ...string) func(*config.Tool) {
		return func(t *config.Tool) {
			t.Guards = []config.Guard{{Purpose: "authorize", Static: &config.StaticGuard{Roles: roles}}}
		}
	}
	exec := func(purpose string, argv ...string) func(*config.Tool) {
		return func(t *config.Tool) { t.Guards = []config.Guard{{Purpose: purpose, Exec: &config.Exec{Argv: argv}}} }
	}
	seen := map[string]string{}
	for name, change := range map[string]func(*config.Tool){
		"none":      func(*config.Tool) {},
		"approval":  func(t *config.Tool) { t.Approval.Mode = "required" },
		"at effect": func(t *config.Tool) { t.Approval.Mode = "at_effect" },
		"a role":    static("clerk"),
		"two roles": static("clerk", "boss"),
		"a program": exec("authorize", "/bin/may"),
		"validate":  exec("validate", "/bin/may"),
		"argument":  exec("authorize", "/bin/may", "-x"),
		"select": func(t *config.Tool) {
			t.Guards = []config.Guard{{Purpose: "validate", SQL: &config.SQLGuard{Select: "SELECT 1"}}}
		},
		"http": func(t *config.Tool) {
			t.Guards = []config.Guard{{Purpose: "authorize", HTTP: &config.HTTP{URL: "http://127.0.0.1:9/may"}}}
		},
	} {
		got := policy(change)
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s have one policy revision", name, other)
		}
		seen[got] = name
	}
	if policy(static("boss", "clerk")) != policy(static("clerk", "boss")) {
		t.Error("the order of roles is part of the policy")
	}
	slow := func(t *config.Tool) {
		exec("authorize", "/bin/may")(t)
		t.Guards[0].Timeout = 7
		t.Approval.ExpiresAfter = 7
	}
	if policy(slow) != policy(exec("authorize", "/bin/may")) {
		t.Error("a time limit is part of the policy: tuning must not part the backlog from it")
	}
}
