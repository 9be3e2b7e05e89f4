package intake_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledgertest"
)

func registry(t testing.TB) *contract.Registry {
	raw := ledgertest.Tool("raw", entry.Idempotent)
	raw.WireKey = string(contract.WireRaw)
	return ledgertest.Registry(t, ledgertest.Tool("lamp", entry.Idempotent), ledgertest.Tool("door", entry.Opaque), raw)
}

// lamp is a valid request with a change.
func lamp(key string, change func(*intake.Request)) intake.Request {
	r := ledgertest.Request("lamp", key)
	if change != nil {
		change(&r)
	}
	return r
}

func TestPrepareRefuses(t *testing.T) {
	reg := registry(t)
	args := func(s string) func(*intake.Request) {
		return func(r *intake.Request) { r.Arguments = []byte(s) }
	}
	key := func(s string) func(*intake.Request) {
		return func(r *intake.Request) { r.Scope.Key = s }
	}
	for _, c := range []struct {
		name   string
		change func(*intake.Request)
		code   string
		path   string // of one of the problems
		what   string // part of its text
	}{
		{"no key", key(""), intake.KeyRequired, "idempotency_key", "absent"},
		{"blank key", key(" "), intake.KeyRequired, "idempotency_key", "absent, empty or blank"},
		{"wide blank key", key("\u3000"), intake.KeyRequired, "idempotency_key", "blank"},
		{"key with white space behind", key("a "), intake.InputInvalid, "idempotency_key", "white space"},
		{"key with newline", key("a\nb"), intake.InputInvalid, "idempotency_key", "control character at byte 1"},
		{"key with DEL", key("a\x7fb"), intake.InputInvalid, "idempotency_key", "control character"},
		{"key with NUL", key("a\x00b"), intake.InputInvalid, "idempotency_key", "control character"},
		{"key of 5,000 characters", key(strings.Repeat("k", 5000)), intake.InputInvalid, "idempotency_key", "5000 bytes"},
		{"key that is not UTF-8", key("kite\xff"), intake.InputInvalid, "idempotency_key", "byte 4 is not UTF-8"},
		{"raw key with emoji", func(r *intake.Request) { r.Scope.Tool, r.Scope.Key = "raw", "a🪁" }, intake.InputInvalid, "idempotency_key", "printable ASCII"},
		{"no tenant", func(r *intake.Request) { r.Scope.Tenant = "" }, intake.InputInvalid, "tenant_id", "absent"},
		{"subject with tab", func(r *intake.Request) { r.Scope.Subject = "a\tb" }, intake.InputInvalid, "subject_id", "control"},
		{"no tool", func(r *intake.Request) { r.Scope.Tool = "" }, intake.InputInvalid, "tool_name", "absent"},
		{"unknown tool", func(r *intake.Request) { r.Scope.Tool = "lamp.toggle" }, intake.ToolUnknown, "tool_name", "no tool"},
		{"unknown tool without a key", func(r *intake.Request) { r.Scope.Tool, r.Scope.Key = "nope", "" }, intake.ToolUnknown, "idempotency_key", "absent"},
		{"other case of a tool", func(r *intake.Request) { r.Scope.Tool = "Lamp" }, intake.ToolUnknown, "tool_name", "no tool"},
		{"no arguments", args(""), intake.InputInvalid, "arguments", "empty"},
		{"not JSON", args("{"), intake.InputInvalid, "arguments", "too early"},
		{"two values", args("{}{}"), intake.InputInvalid, "arguments", "no JSON"},
		{"member twice", args(`{"kind":"lamp","kind":"door"}`), intake.InputInvalid, "arguments/kind", "twice"},
		{"member twice at depth", args(`{"a":{"b":{"c":{"d":{"e":1,"e":1}}}}}`), intake.InputInvalid, "arguments/a/b/c/d/e", "twice"},
		{"member twice by escape", args("{\"a\":1,\"\\u0061\":2}"), intake.InputInvalid, "arguments/a", "twice"},
		{"byte FF", args("{\"a\":\"\xff\"}"), intake.InputInvalid, "arguments", "byte 6 is not UTF-8"},
		{"overlong", args("{\"a\":\"\xc0\x80\"}"), intake.InputInvalid, "arguments", "byte 6 is not UTF-8"},
		{"cut character", args("{\"a\":\"\xe2\x82\"}"), intake.InputInvalid, "arguments", "byte 6 is not UTF-8"},
		{"2^53+1", args(`{"account":9007199254740993}`), intake.InputInvalid, "arguments/account", "out of range"},
		{"1e400", args(`[1e400]`), intake.InputInvalid, "arguments/0", "out of range"},
		{"1e1000000000", args(`[1e1000000000]`), intake.InputInvalid, "arguments/0", "out of range"},
		{"1e-400", args(`[1e-400]`), intake.InputInvalid, "arguments/0", "change"},
		{"400 zeros", args(`[0.` + strings.Repeat("0", 400) + `1]`), intake.InputInvalid, "arguments/0", "change"},
		{"NaN", args(`[NaN]`), intake.InputInvalid, "arguments/0", "no JSON"},
		{"Infinity", args(`[-Infinity]`), intake.InputInvalid, "arguments/0", ""},
		{"BOM", args("\xef\xbb\xbf{}"), intake.InputInvalid, "arguments", "starts with a BOM"},
		{"UTF-16", args("\xff\xfe{\x00}\x00"), intake.InputInvalid, "arguments", "starts with a BOM"},
		{"33 levels", args(strings.Repeat("[", 33) + strings.Repeat("]", 33)), intake.InputInvalid, "arguments/0", "more than 32 levels"},
		{"5,000,000 brackets", args(strings.Repeat("[", 5_000_000)), intake.InputInvalid, "arguments", "5000000 bytes"},
		{"too long", args(`"` + strings.Repeat("x", 65535) + `"`), intake.InputInvalid, "arguments", "65537 bytes"},
		{"lone surrogate", args(`"\ud800"`), intake.InputInvalid, "arguments", "surrogate"},
		{"before 1970", func(r *intake.Request) { r.NotBefore = time.Unix(0, -1_000_001) }, intake.InputInvalid, "not_before", "out of range"},
		{"year 10000", func(r *intake.Request) { r.NotBefore = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, intake.InputInvalid, "not_before", "out of range"},
		{"year 10000 by rounding", func(r *intake.Request) { r.NotBefore = time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC) }, intake.InputInvalid, "not_before", "out of range"},
		{"session with newline", func(r *intake.Request) { r.Session = "a\n" }, intake.InputInvalid, "session", "control"},
		{"turn without session", func(r *intake.Request) { r.Turn = 3 }, intake.InputInvalid, "turn", "without a session"},
		{"negative turn", func(r *intake.Request) { r.Session, r.Turn = "s", -1 }, intake.InputInvalid, "turn", "out of range"},
		{"turn beyond 2^53-1", func(r *intake.Request) { r.Session, r.Turn = "s", 1<<53 }, intake.InputInvalid, "turn", "out of range"},
		{"provider with white space", func(r *intake.Request) { r.Origin.Provider = " p" }, intake.InputInvalid, "provider", "white space"},
		{"call id too long", func(r *intake.Request) { r.Origin.CallID = strings.Repeat("c", 256) }, intake.InputInvalid, "call_id", "256 bytes"},
		{"traceparent", func(r *intake.Request) { r.Trace = "00-1" }, intake.InputInvalid, "traceparent", "no traceparent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			_, err := intake.Prepare(reg, lamp("kite-1", c.change))
			var invalid *intake.Invalid
			if !errors.As(err, &invalid) {
				t.Fatalf("got error %v, want an *Invalid", err)
			}
			if invalid.Code != c.code {
				t.Errorf("got code %s, want %s", invalid.Code, c.code)
			}
			if !slices.ContainsFunc(invalid.Problems, func(p contract.InputError) bool {
				return strings.HasPrefix(p.Path, c.path) && strings.Contains(p.What, c.what)
			}) {
				t.Errorf("got %q, want a problem of %s with %q", invalid, c.path, c.what)
			}
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestPrepareNamesEveryProblem(t *testing.T) {
	_, err := intake.Prepare(registry(t), intake.Request{Turn: -1, Trace: "x", Arguments: []byte("{")})
	for _, field := range []string{"tenant_id", "subject_id", "tool_name", "idempotency_key", "arguments", "turn", "traceparent"} {
		if err == nil || !strings.Contains(err.Error(), field+":") {
			t.Errorf("got %q, want it to name %s", err, field)
		}
	}
}

func TestPrepareNeverQuotesAValue(t *testing.T) {
	const secret = "hunter2"
	for name, change := range map[string]func(*intake.Request){
		"key":       func(r *intake.Request) { r.Scope.Key = secret + "\n" },
		"tool":      func(r *intake.Request) { r.Scope.Tool = secret },
		"arguments": func(r *intake.Request) { r.Arguments = []byte(`{"a":"` + secret + `","b":1e999}`) },
		"session":   func(r *intake.Request) { r.Session = secret + " " },
		"trace":     func(r *intake.Request) { r.Trace = secret },
		"provider":  func(r *intake.Request) { r.Origin.Provider = secret + "\x00" },
	} {
		if _, err := intake.Prepare(registry(t), lamp("k", change)); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got error %v, want one without the value", name, err)
		}
	}
}

func TestTraceparent(t *testing.T) {
	const id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for trace, want := range map[string]bool{
		"00-" + id + "-" + parent + "-01":                             true,
		"00-" + id + "-" + parent + "-ff":                             true,
		"cc-" + id + "-" + parent + "-01":                             true,
		"cc-" + id + "-" + parent + "-01-what-comes-later":            true,
		"cc-" + id + "-" + parent + "-01-" + strings.Repeat("x", 300): false,
		"cc-" + id + "-" + parent + "-01-\r\n":                        false,
		"cc-" + id + "-" + parent + "-01.later":                       false,
		"00-" + id + "-" + parent + "-01-x":                           false,
		"00-" + id + "-" + parent + "-01 ":                            false,
		"ff-" + id + "-" + parent + "-01":                             false,
		"00-" + strings.ToUpper(id) + "-" + parent + "-01":            false,
		"00-" + strings.Repeat("0", 32) + "-" + parent + "-01":        false,
		"00-" + id + "-0000000000000000-01":                           false,
		"00-" + id[1:] + "-" + parent + "-01":                         false,
		"0-" + id + "-" + parent + "-01":                              false,
		"00-" + id + "-" + parent:                                     false,
		"00-" + id + "-" + parent + "-1":                              false,
	} {
		_, err := intake.Prepare(registry(t), lamp("k", func(r *intake.Request) { r.Trace = trace }))
		if (err == nil) != want {
			t.Errorf("Prepare with traceparent %q: got error %v, want accepted %t", trace, err, want)
		}
	}
}

// FuzzPrepare: whatever comes in, it is refused with a reason or has one
// canonical form.
func FuzzPrepare(f *testing.F) {
	reg := ledgertest.Registry(f, config.Tool{Name: "lamp"})
	for _, s := range []string{`{}`, `{"a":1e400}`, "[[[[", `"\ud800"`, "\xef\xbb\xbf{}", `{"b":1,"a":[true,null,-0.5]}`} {
		f.Add("acme", "kite-1", []byte(s), "s", int64(1))
	}
	f.Fuzz(func(t *testing.T, tenant, key string, args []byte, session string, turn int64) {
		_, err := intake.Prepare(reg, intake.Request{
			Scope:     contract.Scope{Tenant: tenant, Subject: "shop", Tool: "lamp", Key: key},
			Arguments: args, Session: session, Turn: turn,
		})
		var invalid *intake.Invalid
		if err != nil && (!errors.As(err, &invalid) || len(invalid.Problems) == 0) {
			t.Fatalf("got %v, want an *Invalid with problems", err)
		}
	})
}

func TestPrepareRefusesWhatTheSchemaDoesNotTake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(path, []byte(`{"properties":{"order":{"type":"string"},"lines":{"items":{"type":"integer"}}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	tool := ledgertest.Tool("lamp", entry.Idempotent)
	tool.InputSchema = path
	r := lamp("k", func(r *intake.Request) { r.Arguments = []byte(`{"lines":[1,"secret"],"order":17}`) })
	_, err := intake.Prepare(ledgertest.Registry(t, tool), r)
	invalid, ok := errors.AsType[*intake.Invalid](err)
	if !ok || invalid.Code != intake.InputInvalid || len(invalid.Problems) != 2 {
		t.Fatalf("got %v, want two problems", err)
	}
	if invalid.Problems[0].Path != "arguments/lines/1" || invalid.Problems[1].Path != "arguments/order" || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want the paths and no value", err)
	}
}

func TestPrepareRefusesAnOriginOfNoRegisteredProfile(t *testing.T) {
	reg := registry(t).WithProviders([]config.Provider{{Provider: "p", APIFamily: "f", AdapterRevision: "1"}})
	for _, c := range []struct {
		origin contract.Origin
		ok     bool
	}{
		{contract.Origin{}, true},
		{contract.Origin{Provider: "p", APIFamily: "f", AdapterRevision: "1", CallID: "c"}, true},
		{contract.Origin{Provider: "p", APIFamily: "f", AdapterRevision: "2"}, false},
		{contract.Origin{Provider: "p", APIFamily: "g", AdapterRevision: "1"}, false},
		{contract.Origin{Provider: "q", APIFamily: "f", AdapterRevision: "1"}, false},
		{contract.Origin{CallID: "c"}, false},
	} {
		_, err := intake.Prepare(reg, lamp("k", func(r *intake.Request) { r.Origin = c.origin }))
		if (err == nil) != c.ok {
			t.Errorf("%+v: got %v, want accepted %v", c.origin, err, c.ok)
		}
	}
}
