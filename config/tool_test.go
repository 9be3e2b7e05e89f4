package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
)

// web is a tool with one HTTP target that has these keys.
func web(keys string) string { return tool(`http: {url: "http://h", ` + keys + `}`) }

// asked is a tool with a query that has these keys.
func asked(keys string) string { return program(`query: {` + keys + `}`) }

func TestToolRefusals(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"no name", "tools: [{exec: {argv: [x]}}]", "tools[0].name: found nothing"},
		{"control character", "tools: [{name: \"a\\tb\", exec: {argv: [x]}}]", `tools[0].name: found "a\tb", with control characters`},
		{"white space", `tools: [{name: "a ", exec: {argv: [x]}}]`, "with white space at an end"},
		{"long name", "tools: [{name: " + strings.Repeat("n", 256) + ", exec: {argv: [x]}}]", "found 256 bytes"},
		{"built-in name", "tools: [{name: outbox.project, exec: {argv: [x]}}]", `found "outbox.project"; allowed: a name that does not begin with outbox.`},
		{"neither", "tools: [{name: a}]", "tools[0]: found a tool with none of http, exec and sql"},
		{"both", tool(`http: {url: "http://h"}, exec: {argv: [x]}`), "tools[0].exec: found exec beside http"},
		{"local program", program("effect: local"), "tools[0].effect: found local with http or exec"},
		{"effect", program("effect: idempotant"), "did you mean idempotent?"},
		{"queryable", program("effect: queryable"), "tools[0].effect: found queryable without a query"},
		{"empty query", asked(""), "tools[0].query: found a query with neither http nor exec"},
		{"two timeouts", tool("timeout: 1s, exec: {argv: [x], timeout: 2s}"), "tools[0].exec.timeout: found a timeout here and at tools[0]; allowed: one of them"},
		{"two timeouts of a query", asked(`timeout: 1s, http: {url: "http://h/{key}", timeout: 1s}`), "tools[0].query.http.timeout: found a timeout here and at tools[0].query"},
		{"rate", program("rate: 20"), "tools[0].rate: found the number 20; allowed: events per second, minute or hour, for example 20/s"},
		{"rate of zero", program("rate: 0/s"), `found "0/s"`},
		{"key window", program("key_window: 0s"), "tools[0].key_window: found 0s; allowed: 1s to 87600h"},
		{"revision", program("revisions: {effect: a b}"), `tools[0].revisions.effect: found "a b"`},
		{"empty revision", program(`revisions: {effect: ""}`), `tools[0].revisions.effect: found ""`},

		{"no url", tool("http: {method: PUT}"), "tools[0].http.url: found nothing"},
		{"scheme", tool("http: {url: h/x}"), "tools[0].http.url: found a URL that does not begin with http:// or https://"},
		{"host", tool(`http: {url: "http:///x"}`), "found a URL without a host"},
		{"port", tool(`http: {url: "http://h:70000/x"}`), "found a URL with a port that is none"},
		{"fragment", tool(`http: {url: "http://h/x#y"}`), "found a URL with a fragment"},
		{"placeholder", tool(`http: {url: "http://h/{key}"}`), "found a URL with {key} or {ref}, which only a query's has"},
		{"method", web("method: GET"), `tools[0].http.method: found "GET"; allowed: POST or PUT`},
		{"proxy", web("proxy: h"), "tools[0].http.proxy: found a URL that does not begin with http://, https:// or socks5://"},
		{"half a certificate", tool(`http: {url: "https://h", cert_file: c.pem}`), "tools[0].http: found one of cert_file and key_file"},
		{"unencrypted", web("ca_file: c.pem"), "tools[0].http.url: found certificates with a URL that is not encrypted"},
		{"header map", web("headers: {A: b}"), "tools[0].http.headers: found a mapping; allowed: a list"},
		{"header name", web(`headers: [{name: "A b", value: c}]`), "headers[0].name: found a name that is no header name"},
		{"header line", web(`headers: [{name: A, value: "b\r\nc"}]`), "headers[0].value: found a value with a line break"},
		{"header of ours", web(`headers: [{name: idempotency-Key, value: b}]`), `headers[0].name: found "idempotency-Key", which is set for each request`},
		{"header twice", web(`headers: [{name: A, value: b}, {name: a, value: b}]`), `headers[1].name: found "a" a second time`},
		{"header without value", web(`headers: [{name: A}]`), "headers[0]: found a header with both value and value_file, or with neither"},
		{"header with two", web(`headers: [{name: A, value: b, value_file: c}]`), "headers[0]: found a header with both"},

		{"query url", asked(`http: {url: "http://h/x"}`), "tools[0].query.http.url: found a URL with neither {key} nor {ref}"},
		{"query host", asked(`http: {url: "http://{key}.h/x"}`), "found a URL with {key} or {ref} before its path"},
		{"query brace", asked(`http: {url: "http://h/{key}/{id}"}`), "found a URL with a brace that is not {key} or {ref}"},
		{"query method", asked(`http: {url: "http://h/{ref}", method: POST}`), `found "POST"; allowed: GET`},

		{"argv", tool("exec: {argv: []}"), "tools[0].exec.argv: found no program"},
		{"argv is text", tool("exec: {argv: ls -l}"), "tools[0].exec.argv: found text; allowed: a list"},
		{"exit code", tool("exec: {argv: [x], rejected: [0]}"), "tools[0].exec.rejected[0]: found 0; allowed: 1 to 255"},
		{"exit code twice", tool("exec: {argv: [x], rejected: [65, 75]}"), "tools[0].exec.rejected[1]: found 75, which try_again has too"},
		{"variable", tool("exec: {argv: [x], env: [LANG=C]}"), "tools[0].exec.env[0]: found a name with = or NUL in it"},
		{"variables as map", tool("exec: {argv: [x], env: {Lang: b}}"), "tools[0].exec.env: found a mapping; allowed: a list"},
		{"variable of ours", tool("exec: {argv: [x], env: [NOTIFY_SOCKET]}"), `found "NOTIFY_SOCKET", which is set`},
		{"variable twice", tool("exec: {argv: [x], env: [A, {name: A, value: b}]}"), `tools[0].exec.env[1]: found "A" a second time`},
		{"empty variable", tool(`exec: {argv: [x], env: [{name: A, value: ""}]}`), "tools[0].exec.env[0].value: found an empty value"},
	} {
		if got := refusal(t, tt.text); !strings.Contains(got, tt.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %s\n got: %s\nwant one problem with: %s", tt.name, tt.text, got, tt.want)
		}
	}
}

func TestRawKeysNeedAnEndpointOfTheirOwn(t *testing.T) {
	const mine = "http://shop.example:80/a"
	for other, shared := range map[string]bool{
		"http://shop.example/a":       true,
		"http://SHOP.example/a":       true,
		"HTTP://shop.example./a/":     true,
		"http://u:p@shop.example/a":   true,
		"http://shop.example/b/../a":  true,
		"http://shop.example/%61":     true,
		"http://shop.example/a?x=1":   true,
		"https://shop.example/a":      false,
		"http://shop.example:8080/a":  false,
		"http://shop.example/A":       false,
		"http://shop.example/":        false,
		"http://api.shop.example:80/": false,
	} {
		text := `tools: [{name: a, wire_key: raw, http: {url: "` + mine + `"}}, {name: b, http: {url: "` + other + `"}}]`
		_, err := config.Parse("c.yaml", []byte(text), nil)
		want := `tools[0].wire_key: found raw, with an endpoint that tool "b" has too`
		if got := err != nil && strings.Contains(err.Error(), want); got != shared || !shared && err != nil {
			t.Errorf("raw at %s beside %s: %v, want refusal %t", mine, other, err, shared)
		}
	}
	refusal(t, "tools: [{name: a, wire_key: raw, exec: {argv: [x, y]}}, {name: b, exec: {argv: [x, y]}}]")
	parse(t, "tools: [{name: a, wire_key: raw, exec: {argv: [x, y]}}, {name: b, exec: {argv: [x, z]}}]")
}

func TestAllowedCombinations(t *testing.T) {
	for _, text := range []string{
		asked("exec: {argv: [ask]}, not_before: 1ms"), // an opaque tool that can be asked
		program(`effect: idempotent, query: {http: {url: "http://h/?k={key}&r={ref}"}}`),
		web(`headers: [{name: Host, value: shop.example}]`),
		tool(`http: {url: "http://user:pass@[::1]:9000/x", proxy: "socks5://u:p@h:1"}`),
		tool("exec: {argv: [x], rejected: [75], try_again: []}"),
	} {
		parse(t, text)
	}
}

func TestNoProblemHoldsASecret(t *testing.T) {
	for _, text := range []string{
		tool(`http: {url: "http://u:tok-55@h:0/hook/tok-55?sig=tok-55", proxy: "ftp://u:tok-55@h"}`),
		tool(`http: {url: "http://h/%zz?tok-55"}`),
		tool(`http: {url: "tok-55://h"}, wire_key: rwa`),
		tool("http: \"http://u:tok-55@h\""),
		tool("http: {http://u:tok-55@h: }"),
		web("headers: [\"A: tok-55\"]"),
		web(`headers: [{name: "A: tok-55", value: x}, {name: "A: tok-55", value: x}]`),
		web(`headers: [{name: A, value: "tok-55\n"}, {name: A, value: tok-55, value_file: x}]`),
		web(`headers: [{name: A, value: [tok-55]}]`),
		web("headers: [{name: A, value: *tok-55}]"),
		web("headers: [{name: A, value: !tok-55 x}]"),
		web("headers: [{name: A, value: \"tok-55}]"),
		web("headers: tok-55"),
		tool("exec: {argv: [x, \"tok-55\\0\"], env: [A=tok-55, A=tok-55, {name: A, value: \"tok-55\\0\"}]}"),
		tool("exec: {argv: tok-55, env: tok-55}"),
		tool("exec: {argv: [{tok-55: 1}]}"),
	} {
		if got := refusal(t, text); strings.Contains(got, "tok-55") {
			t.Errorf("%s: problem holds the secret: %s", text, got)
		}
	}
}

func TestToolInGoIsCompletedAndChecked(t *testing.T) {
	c := parse(t, "retry: {max_attempts: 3}\nworker: {per_tool: 7}\n"+web("method: PUT"))
	target := &config.HTTP{URL: "https://h/own", Timeout: 2 * time.Second}
	got, err := c.Tool(config.Tool{Name: "go", HTTP: target, Retry: config.Retry{MaxLapses: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if got.Retry.MaxAttempts != 3 || got.Retry.MaxLapses != 1 || got.Concurrency != 7 || got.Timeout != 2*time.Second || got.Effect != "opaque" {
		t.Errorf("completed tool = %+v", got)
	}
	if target.Method != "" || target.Timeout != 2*time.Second {
		t.Errorf("the declared target was changed: %+v", target)
	}
	if bare, err := c.Tool(config.Tool{Name: "bare"}); err != nil || bare.Timeout != 30*time.Second {
		t.Errorf("tool without a target = %+v, %v; want timeout 30s", bare, err)
	}

	_, err = c.Tool(config.Tool{
		Name: "go", Effect: "queryable", WireKey: "raw", HTTP: &config.HTTP{URL: "http://h/"},
		Retry: config.Retry{Initial: 20 * time.Minute, Backoff: "linear"}, Rate: config.Rate{Events: 1}, Timeout: -1,
	})
	want := `tools[go].effect: found queryable without a query; allowed: a query beside it, or another effect
tools[go].rate: found half a rate; allowed: both events and period, or neither
tools[go].retry.backoff: found "linear"; allowed: exponential, constant or list
tools[go].timeout: found -1ns; allowed: 1ms to 24h
tools[go].wire_key: found raw, with an endpoint that tool "a" has too; allowed: scope, or an endpoint that no other tool has`
	var problems *config.Problems
	if !errors.As(err, &problems) || err.Error() != want {
		t.Errorf("problems of a tool in Go\n got:\n%v\nwant:\n%s", err, want)
	}
}
