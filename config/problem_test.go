package config_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestAllProblemsAtOnceInOrder(t *testing.T) {
	got := refusal(t, `worker:
  poll_interval: 30
  concurency: 8
lease: {ttl: 10s, heartbeat: 10s}
tools:
  - name: a
    http: {url: "ftp://h/x"}
    retry: {max_attemps: 2, max_attemps: 3}
    rate: 20
    concurrency: 0
  - name: a
    effect: queryable
retry: {jiter: 0.1, max: 500ms}
lease: {}
`, "OUTBOXD_LOG_LEVEL=loud")
	want := `c.yaml:2:18: worker.poll_interval: found the number 30, unit missing; allowed: a duration with a unit, 10ms to 5m, for example 30s
c.yaml:3:3: worker.concurency: found an unknown key; allowed: did you mean concurrency? One of concurrency, per_tool, poll_interval, drain_timeout, exclusive
c.yaml:4:30: lease.heartbeat: found 10s with ttl 10s; allowed: less than lease.ttl; without it, a third of lease.ttl
c.yaml:7:17: tools[0].http.url: found a URL that does not begin with http:// or https://; allowed: http:// or https://, host, path
c.yaml:8:13: tools[0].retry.max_attemps: found an unknown key; allowed: did you mean max_attempts? One of backoff, initial, factor, max, delays, jitter, max_attempts, max_age, max_lapses, max_queries
c.yaml:8:29: tools[0].retry.max_attemps: found an unknown key; allowed: did you mean max_attempts? One of backoff, initial, factor, max, delays, jitter, max_attempts, max_age, max_lapses, max_queries
c.yaml:9:11: tools[0].rate: found the number 20; allowed: events per second, minute or hour, for example 20/s, 100/m or 5/h
c.yaml:10:18: tools[0].concurrency: found 0; allowed: 1 to 10000
c.yaml:11:5: tools[1]: found a tool with none of http, exec and sql; allowed: one of them
c.yaml:11:11: tools[1].name: found "a" a second time; allowed: a name that is not tools[0]'s
c.yaml:12:13: tools[1].effect: found queryable without a query; allowed: a query beside it, or another effect
c.yaml:13:9: retry.jiter: found an unknown key; allowed: did you mean jitter? One of backoff, initial, factor, max, delays, jitter, max_attempts, max_age, max_lapses, max_queries
c.yaml:13:26: retry.max: found initial 1s with max 500ms; allowed: max at least as long as initial
c.yaml:14:1: lease: found the same key a second time; allowed: each key once; the first is at line 4
environment: OUTBOXD_LOG_LEVEL (log.level): found "loud"; allowed: debug, info, warn or error`
	if got != want {
		t.Errorf("problems\n got:\n%s\nwant:\n%s", got, want)
	}
}

// tool wraps the keys of one tool, in flow style, into a file.
func tool(keys string) string { return "tools: [{name: a, " + keys + "}]" }

// program is a tool with these keys and a program.
func program(keys string) string { return tool("exec: {argv: [x]}, " + keys) }

func TestRefusals(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		// The whole file.
		{"empty", "", "c.yaml: found no settings"},
		{"comments only", "# nothing\n", "found no settings"},
		{"null document", "---\n", "found no settings"},
		{"BOM", "\xef\xbb\xbflog: {}\n", "c.yaml:1:1: found a file that starts with a BOM"},
		{"UTF-16", "\xff\xfel\x00", "found a file in UTF-16 (it starts with a BOM)"},
		{"no UTF-8", "log: {}\nx: \xff\n", "c.yaml:2:4: found a byte that is not UTF-8 text, at offset 11"},
		{"NUL", "log: {}\x00", "at offset 7"},
		{"two documents", "log: {}\n---\nlog: {}\n", "c.yaml:2:1: found a second YAML document"},
		{"broken second document", "log: {}\n---\nlog: {\n", "found a YAML syntax error"},
		{"list", "- log\n", "c.yaml:1:1: found a list; allowed: a mapping of sections"},
		{"text", "hello", "found text; allowed: a mapping of sections"},
		{"cut off", "log: {level: info\n", "found a YAML syntax error: did not find expected"},
		{"tab", "log:\n\tlevel: info\n", "c.yaml:2:1: found a YAML syntax error"},
		{"bare star", "principals: [{subject: *}]", "needs quotes"},
		{"alias", "retry: &r {}\nlog: *r\n", "c.yaml:2:6: log: found an alias; allowed: the value itself"},
		{"merge key", "log: {<<: {level: info}}", "log: found a key that is no plain word"},
		{"tag", "log: {level: !!str info}", "log.level: found a YAML tag"},
		// Keys.
		{"unknown section", "wroker: {}", "c.yaml:1:1: wroker: found an unknown key; allowed: did you mean worker?"},
		{"upper case", "Log: {}", "Log: found an unknown key; allowed: did you mean log?"},
		{"in a list", "principals: [{nam: x, uid: 5, may_submit: [{tenant: t, subject: s}]}]", "principals[0].nam: found an unknown key; allowed: did you mean name?"},
		{"deep", tool(`http: {url: "http://h", headers: [{name: A, vlaue: b}]}`), "tools[0].http.headers[0].vlaue: found an unknown key; allowed: did you mean value?"},
		{"duplicate, deep", tool(`http: {url: "http://h", url: "http://i"}`), "tools[0].http.url: found the same key a second time"},
		{"no word", "{[a]: b}", "found a key that is no plain word"},
		{"section is a word", "log: info", "c.yaml:1:6: log: found text; allowed: a mapping with the keys level, format"},
		{"nothing", "log: {level: }", "log.level: found nothing; allowed: debug, info, warn or error"},
		// Case 69: durations.
		{"number", program("timeout: 30"), "tools[0].timeout: found the number 30, unit missing; allowed: a duration with a unit, 1ms to 24h, for example 30s"},
		{"quoted number", program(`timeout: "30"`), `tools[0].timeout: found "30", unit missing`},
		{"fraction", "worker: {poll_interval: 1.5}", "worker.poll_interval: found the number 1.5, unit missing; allowed: a duration with a unit, 10ms to 5m, for example 1.5s"},
		{"zero", "worker: {poll_interval: 0}", "unit missing"},
		{"signed", "worker: {poll_interval: -3}", "for example 3s"},
		{"day", "lease: {ttl: 1d}", `lease.ttl: found "1d"; allowed: a duration in h, m, s or ms, 1s to 1h, for example 30s`},
		{"in a list", "retry: {backoff: list, delays: [1s, 5]}", "retry.delays[1]: found the number 5, unit missing"},
		{"boolean", "lease: {ttl: true}", "lease.ttl: found the boolean true"},
		{"negative", "lease: {ttl: -5s}", "lease.ttl: found -5s; allowed: 1s to 1h"},
		{"nanoseconds", "worker: {poll_interval: 30ns}", "worker.poll_interval: found 30ns; allowed: 10ms to 5m"},
		{"clock", "lease: {ttl: 1:30}", `lease.ttl: found "1:30"`},
		// Case 70: words and octal.
		{"octal", "listen: {socket_mode: 0640}", `c.yaml:1:23: listen.socket_mode: found the number 0640; allowed: a quoted octal string, for example "0660"`},
		{"octal 1.2", "listen: {socket_mode: 0o640}", "found the number 0o640"},
		{"decimal", "listen: {socket_mode: 640}", "found the number 640"},
		{"quoted decimal", `listen: {socket_mode: "640"}`, `found "640"`},
		{"no octal", `listen: {socket_mode: "0680"}`, `found "0680"`},
		{"sticky", `listen: {socket_mode: "01660"}`, `found "01660"`},
		{"useless", `listen: {socket_mode: "0060"}`, `listen.socket_mode: found "060"; allowed: "0600" to "0777"`},
		{"no", "worker: {exclusive: no}", `worker.exclusive: found "no"; allowed: true or false, without quotes`},
		{"off", "database: {allow_network_fs: off}", `database.allow_network_fs: found "off"`},
		{"yes", "database: {allow_network_fs: yes}", `found "yes"`},
		{"quoted boolean", `worker: {exclusive: "false"}`, `found "false"`},
		{"zero as boolean", "worker: {exclusive: 0}", "found the number 0"},
		{"octal number", "operators: {uids: [010]}", "operators.uids[0]: found the number 010; allowed: a whole number in plain decimal digits, 0 to 4294967294"},
		{"underscore", "worker: {concurrency: 1_0}", "worker.concurrency: found the number 1_0"},
		{"fraction for a number", "worker: {concurrency: 1.5}", "found the number 1.5"},
		{"huge number", "worker: {concurrency: 99999999999999999999}", "found the number 99999999999999999999"},
		{"quoted number", `worker: {concurrency: "8"}`, `found "8"`},
		{"number as name", "tools: [{name: 007, exec: {argv: [x]}}]", "tools[0].name: found the number 007; allowed: text: put it in quotes"},
		{"number as word", "retry: {jitter: 0}", "retry.jitter: found the number 0; allowed: full, equal or none"},
		{"date as name", "tools: [{name: 2031-01-02, exec: {argv: [x]}}]", "found the date 2031-01-02"},
		{"not a number", "retry: {factor: .nan}", "retry.factor: found the number .nan"},
		// Case 71.
		{"misspelt limit", "retry: {max_attemps: 2}", "retry.max_attemps: found an unknown key; allowed: did you mean max_attempts?"},
		// Ranges and contradictions.
		{"word", "log: {level: warning}", `log.level: found "warning"; allowed: debug, info, warn or error`},
		{"misspelt word", "retry: {backoff: exponentiel}", `retry.backoff: found "exponentiel"; allowed: exponential, constant or list; did you mean exponential?`},
		{"factor", "retry: {factor: 0.5}", "retry.factor: found 0.5; allowed: 1 to 100"},
		{"list without delays", "retry: {backoff: list}", "retry.backoff: found backoff list without delays"},
		{"delays without list", "retry: {delays: [1s]}", "retry.delays: found delays with backoff exponential; allowed: delays with backoff: list only"},
		{"delay above max", "retry: {backoff: list, delays: [1s, 11m]}", "retry.delays[1]: found 11m with max 10m"},
		{"inherited max", "retry: {max: 1m}\n" + program("retry: {initial: 2m}"), "c.yaml:2:55: tools[0].retry.initial: found initial 2m with max 1m"},
		{"socket", "listen: {socket: /" + strings.Repeat("s", 107) + "}", "listen.socket: found a path of 108 bytes; allowed: a path of at most 107 bytes"},
		// Principals.
		{"no uid", "principals: [{name: a, may_submit: [{tenant: t, subject: s}]}]", "principals[0].uid: found nothing"},
		{"uid twice", "principals: [{name: a, uid: 5, may_submit: [{tenant: t, subject: s}]}, {name: b, uid: 5, may_submit: [{tenant: t, subject: s}]}]", "principals[1].uid: found 5 a second time"},
		{"no scope", "principals: [{name: a, uid: 5}]", "principals[0].may_submit: found nothing"},
		{"no tenant", "principals: [{name: a, uid: 5, may_submit: [{subject: s}]}]", "principals[0].may_submit[0].tenant: found nothing"},
		{"no tools", "principals: [{name: a, uid: 5, may_submit: [{tenant: t, subject: s, tools: []}]}]", "principals[0].may_submit[0].tools: found an empty list"},
	} {
		if got := refusal(t, tt.text); !strings.Contains(got, tt.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %q\n got: %s\nwant one problem with: %s", tt.name, tt.text, got, tt.want)
		}
	}
}

func TestHugeContentIsRefusedWithoutLookingAtAllOfIt(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"keys":     {strings.Repeat("a: 1\n", 100_000), "c.yaml:1:1: found more than 1000 entries; allowed: fewer"},
		"list":     {"operators: {uids: [" + strings.Repeat("1,", 300_000) + "]}", "operators.uids: found more than 1000 entries"},
		"depth":    {"log: " + strings.Repeat("[", 500_000), "found a YAML syntax error"},
		"nesting":  {"log: " + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000), "log: found a list"},
		"problems": {"tools: [" + strings.Repeat("{x: 1},", 900) + "]", "tools[99].x: found an unknown key"},
	} {
		got := refusal(t, tt.text)
		if lines := strings.Count(got, "\n") + 1; !strings.Contains(got, tt.want) || lines > 100 {
			t.Errorf("%s: %d problems %.300s; want at most 100 with %s", name, lines, got, tt.want)
		}
	}
}

func TestManyToolsAreNoProblem(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "- {name: t%d, wire_key: raw, http: {url: \"http://h/%d\"}}\n", i, i)
	}
	if c := parse(t, "tools:\n"+text.String()); len(c.Tools) != 1000 {
		t.Errorf("%d tools, want 1000", len(c.Tools))
	}
}
