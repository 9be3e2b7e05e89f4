package contract_test

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/outboxd/outboxd/backoff"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
)

func refund() config.Tool {
	return config.Tool{
		Name: "refund_order", Effect: "queryable", WireKey: "scope",
		HTTP:  &config.HTTP{URL: "http://127.0.0.1:9000/refunds", Method: "POST"},
		Query: &config.Query{HTTP: &config.HTTP{URL: "http://127.0.0.1:9000/refunds/{key}", Method: "GET"}, Timeout: 5 * time.Second, NotBefore: 2 * time.Second},
		Retry: config.Retry{
			Backoff: "list", Initial: time.Second, Factor: 2, Max: time.Minute, Delays: []time.Duration{time.Second},
			Jitter: "full", MaxAttempts: 8, MaxAge: time.Hour, MaxLapses: 3, MaxQueries: 20,
		},
		KeyWindow: 24 * time.Hour, Timeout: 10 * time.Second, Concurrency: 4, Rate: config.Rate{Events: 20, Per: time.Second},
		Revisions: config.Revisions{Input: "in-1"},
	}
}

func register(t *testing.T, tools ...config.Tool) *contract.Registry {
	t.Helper()
	r, err := contract.NewRegistry(tools)
	if err != nil {
		t.Fatalf("NewRegistry: %v", err)
	}
	return r
}

func lookup(t *testing.T, tool config.Tool) *contract.Tool {
	t.Helper()
	got, ok := register(t, tool).Lookup(tool.Name)
	if !ok {
		t.Fatalf("Lookup(%q) found nothing", tool.Name)
	}
	return got
}

// derived is a revision as docs/contract.md defines it.
func derived(kind, covers string) string {
	digest := sha256.Sum256([]byte("outboxd.revision." + kind + ".v1\x00" + covers))
	return base64.RawURLEncoding.EncodeToString(digest[:12])
}

func TestRegistryKeepsWhatTheConfigSays(t *testing.T) {
	want := &contract.Tool{
		Approval: contract.ApprovalRule{Mode: contract.ApprovalNone},
		Name:     "refund_order", Effect: entry.Queryable, Wire: contract.WireScope,
		Revisions: contract.Revisions{
			Input:    "in-1",
			Output:   derived("output", `{"schema":null}`),
			Effect:   derived("effect", `{"effect":"queryable","wire_key":"scope"}`),
			Handler:  derived("handler", `{"handler":{"kind":"http","method":"POST","target":"http://127.0.0.1:9000/refunds"},"query":{"kind":"http","method":"GET","target":"http://127.0.0.1:9000/refunds/%7Bkey%7D"}}`),
			Producer: derived("producer", `{"tool":"refund_order"}`),
			Policy:   derived("policy", `{"approval":"none","guards":[]}`),
		},
		Retry: contract.Retry{
			Backoff: backoff.Policy{
				Kind: backoff.List, Initial: time.Second, Factor: 2, Max: time.Minute,
				Delays: []time.Duration{time.Second}, Jitter: backoff.Full,
			},
			MaxAttempts: 8, MaxLapses: 3, MaxQueries: 20, MaxAge: time.Hour,
		},
		KeyWindow: 24 * time.Hour, Timeout: 10 * time.Second,
		Query:       &contract.QueryRule{Timeout: 5 * time.Second, NotBefore: 2 * time.Second},
		Concurrency: 4, Rate: contract.Rate{Events: 20, Per: time.Second},
	}
	if diff := cmp.Diff(want, lookup(t, refund())); diff != "" {
		t.Errorf("tool differs (-want +got):\n%s", diff)
	}
}

func TestNamesAreSortedAndTheCallersOwn(t *testing.T) {
	a, b, c := refund(), refund(), refund()
	a.Name, b.Name, c.Name = "b", "a", "B"
	r := register(t, a, b, c)
	names := r.Names()
	if !slices.Equal(names, []string{"B", "a", "b"}) {
		t.Errorf("Names() = %q, want B, a, b", names)
	}
	names[0] = "x"
	if r.Names()[0] != "B" {
		t.Error("a caller changed the registry's names")
	}
	if _, ok := r.Lookup("A"); ok {
		t.Error("Lookup(A) found a tool, want none: case matters")
	}
}

func TestTuningChangesNoRevision(t *testing.T) {
	before := lookup(t, refund()).Revisions
	for name, tune := range map[string]func(*config.Tool){
		"retry":                          func(c *config.Tool) { c.Retry = config.Retry{Backoff: "constant", MaxAttempts: 1} },
		"timeout":                        func(c *config.Tool) { c.Timeout, c.Query.Timeout, c.Query.NotBefore = 1, 2, 3 },
		"concurrency":                    func(c *config.Tool) { c.Concurrency, c.Rate = 1, config.Rate{} },
		"key window":                     func(c *config.Tool) { c.KeyWindow = time.Hour },
		"header":                         func(c *config.Tool) { c.HTTP.Headers = []config.Header{{Name: "Authorization", Value: "x"}} },
		"certificates":                   func(c *config.Tool) { c.HTTP.CAFile, c.HTTP.CertFile, c.HTTP.Proxy = "a", "b", "c" },
		"rotated secret in the URL":      func(c *config.Tool) { c.HTTP.URL = "http://user:pass@127.0.0.1:9000/refunds?token=1#x" },
		"the same URL otherwise written": func(c *config.Tool) { c.HTTP.URL = "HTTP://127.0.0.1:9000/refunds" },
	} {
		tool := refund()
		tune(&tool)
		if after := lookup(t, tool).Revisions; after != before {
			t.Errorf("%s changed the revisions from %+v to %+v", name, before, after)
		}
	}
}

func TestContractChangesTheRevisionThatCoversIt(t *testing.T) {
	before := lookup(t, refund()).Revisions
	for name, tt := range map[string]struct {
		change func(*config.Tool)
		want   func(*contract.Revisions)
	}{
		"effect":       {func(c *config.Tool) { c.Effect = "opaque" }, func(r *contract.Revisions) { r.Effect = "" }},
		"wire key":     {func(c *config.Tool) { c.WireKey = "raw" }, func(r *contract.Revisions) { r.Effect = "" }},
		"method":       {func(c *config.Tool) { c.HTTP.Method = "PUT" }, func(r *contract.Revisions) { r.Handler = "" }},
		"host":         {func(c *config.Tool) { c.HTTP.URL = "http://localhost:9000/refunds" }, func(r *contract.Revisions) { r.Handler = "" }},
		"path":         {func(c *config.Tool) { c.HTTP.URL = "http://127.0.0.1:9000/Refunds" }, func(r *contract.Revisions) { r.Handler = "" }},
		"port":         {func(c *config.Tool) { c.HTTP.URL = "http://127.0.0.1/refunds" }, func(r *contract.Revisions) { r.Handler = "" }},
		"query target": {func(c *config.Tool) { c.Query.HTTP.URL = "http://127.0.0.1:9000/r/{key}" }, func(r *contract.Revisions) { r.Handler = "" }},
		"program":      {func(c *config.Tool) { c.HTTP, c.Exec = nil, &config.Exec{Argv: []string{"/bin/a"}} }, func(r *contract.Revisions) { r.Handler = "" }},
		"Go function":  {func(c *config.Tool) { c.HTTP = nil }, func(r *contract.Revisions) { r.Handler = "" }},
		"name":         {func(c *config.Tool) { c.Name = "refund" }, func(r *contract.Revisions) { r.Producer = "" }},
		"declared":     {func(c *config.Tool) { c.Revisions.Policy = "2026-03" }, func(r *contract.Revisions) { r.Policy = "" }},
	} {
		tool := refund()
		tt.change(&tool)
		after, want := lookup(t, tool).Revisions, before
		if after == before {
			t.Errorf("%s changed no revision", name)
		}
		tt.want(&after)
		tt.want(&want)
		if after != want {
			t.Errorf("%s changed another revision too: %+v, before %+v", name, after, want)
		}
	}
}

func TestDefaultPortIsThePortOfTheScheme(t *testing.T) {
	for short, long := range map[string]string{
		"https://Example.org":       "https://example.org:443/",
		"http://example.org/a%20b":  "http://example.org:80/a%20b",
		"http://[::1]/a?x={key}":    "http://[::1]:80/a",
		"https://example.org:/path": "https://example.org/path",
	} {
		a, b := refund(), refund()
		a.HTTP.URL, b.HTTP.URL = short, long
		if lookup(t, a).Revisions != lookup(t, b).Revisions {
			t.Errorf("%s and %s are two targets, want one", short, long)
		}
	}
}

func TestNewRegistryRefusesAllThatCannotBeRight(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*config.Tool)
		want   string
	}{
		"no name":            {func(c *config.Tool) { c.Name = "" }, "name: is absent"},
		"bad name":           {func(c *config.Tool) { c.Name = "a\nb" }, "name: has a control character"},
		"no effect":          {func(c *config.Tool) { c.Effect = "" }, "idempotent, queryable, local, opaque"},
		"unknown effect":     {func(c *config.Tool) { c.Effect = "Queryable" }, "idempotent, queryable, local, opaque"},
		"unknown wire key":   {func(c *config.Tool) { c.WireKey = "" }, "scope, raw"},
		"no query":           {func(c *config.Tool) { c.Query = nil }, "query: is absent"},
		"no URL":             {func(c *config.Tool) { c.HTTP.URL = "http://secret host/" }, "url: is no URL"},
		"long revision":      {func(c *config.Tool) { c.Revisions.Output = strings.Repeat("x", 65) }, "revisions.output: "},
		"unprintable":        {func(c *config.Tool) { c.Revisions.Policy = "caf\u00e9" }, "revisions.policy: "},
		"argument not UTF-8": {func(c *config.Tool) { c.HTTP, c.Exec = nil, &config.Exec{Argv: []string{"secret\xff"}} }, "describe handler"},
		"query with no host": {func(c *config.Tool) { c.Query.HTTP.URL = "/secret" }, "url: is no URL"},
	} {
		tool := refund()
		tt.change(&tool)
		_, err := contract.NewRegistry([]config.Tool{tool})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q and no secret", name, err, tt.want)
		}
	}
	broken := refund()
	broken.Name, broken.Effect = "broken", ""
	_, err := contract.NewRegistry([]config.Tool{refund(), refund(), broken})
	if err == nil || !strings.Contains(err.Error(), "another tool has this name") || !strings.Contains(err.Error(), `"broken"`) {
		t.Errorf("two mistakes: %v, want both", err)
	}
}
