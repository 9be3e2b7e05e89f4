package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxd/outboxd/config"
)

// inSQL is a local tool with these keys beside its statements.
func inSQL(keys string) string {
	return tool(`sql: {statements: ["INSERT INTO t VALUES (:arguments)"]` + keys + `}`)
}

// guarded is a tool with one guard, beside a principal with the role clerk.
func guarded(guard string) string {
	return "principals: [{name: p, uid: 7, roles: [clerk], may_submit: [{tenant: a, subject: s}]}]\n" + program("guards: [{"+guard+"}]")
}

func TestTermsAreRefused(t *testing.T) {
	config.OfferAll(t)
	for _, tt := range []struct{ name, text, want string }{
		{"no target", "tools: [{name: a}]", "tools[0]: found a tool with none of http, exec and sql; allowed: one of them"},
		{"sql beside exec", program(`sql: {statements: [SELECT 1]}`), "tools[0].sql: found sql beside http or exec"},
		{"sql of another effect", tool(`effect: opaque, sql: {statements: [SELECT 1]}`), `tools[0].effect: found "opaque" with sql; allowed: local`},
		{"local program", program("effect: local"), "tools[0].effect: found local with http or exec"},
		{"query of local", tool(`sql: {statements: [SELECT 1]}, query: {exec: {argv: [x]}}`), "tools[0].query: found a query of a local tool"},
		{"no statements", tool("sql: {}"), "tools[0].sql.statements: found nothing"},
		{"empty statement", tool(`sql: {statements: [" "]}`), "tools[0].sql.statements[0]: found an empty statement"},
		{"own transaction", tool(`sql: {statements: [SELECT 1, " commit;"]}`), "tools[0].sql.statements[1]: found a statement that is about the transaction"},
		{"result", inSQL(`, result: "DELETE FROM t"`), "tools[0].sql.result: found text that is no question"},
		{"long sql", inSQL(`, timeout: 11s`), "tools[0].sql.timeout: found 11s; allowed: 1ms to 10s"},
		{"long tool with sql", tool(`timeout: 11s, sql: {statements: [SELECT 1]}`), "tools[0].timeout: found 11s with a local effect; allowed: at most 10s"},
		{"two timeouts", tool(`timeout: 1s, sql: {statements: [SELECT 1], timeout: 1s}`), "tools[0].sql.timeout: found a timeout here and at tools[0]"},

		{"guard without purpose", guarded("static: {roles: [clerk]}"), "tools[0].guards[0].purpose: found nothing; allowed: authorize or validate"},
		{"guard of another purpose", guarded("purpose: authorise, static: {roles: [clerk]}"), "did you mean authorize?"},
		{"guard without kind", guarded("purpose: authorize"), "tools[0].guards[0]: found a guard with none of static, exec, http and sql"},
		{"guard with two kinds", guarded("purpose: validate, exec: {argv: [x]}, sql: {select: SELECT 1}"), "tools[0].guards[0]: found a guard with more than one"},
		{"static validate", guarded("purpose: validate, static: {roles: [clerk]}"), "tools[0].guards[0].purpose: found validate with static"},
		{"static without roles", guarded("purpose: authorize, static: {}"), "tools[0].guards[0].static.roles: found nothing"},
		{"unknown role", guarded("purpose: authorize, static: {roles: [clark]}"), `tools[0].guards[0].static.roles[0]: found "clark", which no principal has`},
		{"role twice", guarded("purpose: authorize, static: {roles: [clerk, clerk]}"), `tools[0].guards[0].static.roles[1]: found "clerk" a second time`},
		{"time of static", guarded("purpose: authorize, static: {roles: [clerk]}, timeout: 1s"), "tools[0].guards[0].timeout: found a timeout of a static guard"},
		{"exit codes of a guard", guarded("purpose: validate, exec: {argv: [x], rejected: [3]}"), "tools[0].guards[0].exec: found exit codes of a guard"},
		{"guard that writes", guarded("purpose: validate, sql: {select: DELETE FROM t}"), "tools[0].guards[0].sql.select: found text that is no question"},

		{"approval", program("approval: always"), `tools[0].approval: found "always"; allowed: none, required, at_effect or a mapping`},
		{"approval without mode", program("approval: {expires_after: 1h}"), "tools[0].approval: found expires_after without an approval"},
		{"empty approval", program("approval: {}"), "tools[0].approval: found a mapping; allowed: none, required, at_effect or a mapping with at least one key"},
		{"mode", program("approval: {mode: yes}"), `tools[0].approval.mode: found "yes"; allowed: none, required or at_effect`},
		{"breaker", program("breaker: on"), `tools[0].breaker: found "on"; allowed: off or a mapping`},
		{"breaker that never opens", program("breaker: {cooldown: 1s}"), "tools[0].breaker: found a breaker without failures"},
		{"failures", program("breaker: {failures: 0}"), "tools[0].breaker.failures: found 0; allowed: 1 to 100000"},
		{"boolean", program("breaker: false"), "tools[0].breaker: found the boolean false"},
		{"budget", program("unknown_budget: {per: 1m}"), "tools[0].unknown_budget: found a budget without a count"},
		{"schema", program(`input_schema: ""`), "tools[0].input_schema: found nothing"},

		{"sign", web("sign: {}"), "tools[0].http.sign.secrets_file: found nothing"},
		{"umask", tool("exec: {argv: [x], umask: 0027}"), `tools[0].exec.umask: found the number 0027; allowed: a quoted octal string`},
		{"user", tool("exec: {argv: [x], user: 33}"), "tools[0].exec.user: found the number 33; allowed: text: put it in quotes"},
		{"nice", tool("exec: {argv: [x], nice: -5}"), "tools[0].exec.nice: found -5; allowed: 0 to 19"},

		{"hook", "hook: tell\n" + program("effect: opaque"), `hook: found "tell", which is no tool`},
		{"hook that waits", "hook: a\n" + program("approval: required"), `hook: found "a", which waits for an approval`},
		{"role", "principals: [{name: p, uid: 7, roles: [\"\"], may_submit: [{tenant: a, subject: s}]}]", "principals[0].roles[0]: found nothing"},
		{"provider", "providers: [{provider: p, api_family: f}]", "providers[0].adapter_revision: found nothing"},
		{"provider twice", "providers: [{provider: p, api_family: f, adapter_revision: r}, {provider: p, api_family: f, adapter_revision: r}]", "providers[1]: found the same profile a second time"},
		{"group", `database: {application_group: ""}`, "database.application_group: found nothing"},
		{"one path for two", "database: {path: /x}\nlisten: {socket: /x}", "listen.socket: found the path of the database"},

		{"retention", "retention: {tombstone: 10m}\n" + program("effect: opaque"), `retention.tombstone: found 10m with retries of tool "a" over 32m33s`},
		{"retention of results", "retention: {delivered: 1s}\n" + program("retry: {max_age: 2s}"), `retention.delivered: found 1s with retries of tool "a" over 2s`},
	} {
		if got := refusal(t, tt.text); !strings.Contains(got, tt.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %s\n got: %s\nwant one problem with: %s", tt.name, tt.text, got, tt.want)
		}
	}
}

func TestKeyWindowCoversTheRetries(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"retries", program("effect: idempotent, key_window: 30m"), "tools[0].key_window: found 30m with retries over 32m33s"},
		{"answer", program("key_window: 1m, query: {exec: {argv: [y]}}"), "tools[0].key_window: found 1m with an answer that counts after 1m"},
	} {
		if got := refusal(t, tt.text); !strings.Contains(got, tt.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: got %s\nwant one problem with: %s", tt.name, got, tt.want)
		}
	}
	parse(t, program("effect: idempotent, key_window: 33m"))
	parse(t, program("key_window: 1s")) // nothing is sent again
}

func TestHorizonIsWhenTheLastAttemptMayBegin(t *testing.T) {
	const ten = "timeout: 10s, "
	for _, tt := range []struct {
		keys string
		want time.Duration
	}{
		{ten + "retry: {max_attempts: 1}", 0},
		{ten + "retry: {max_attempts: 3}", 1*time.Second + 2*time.Second + 20*time.Second},
		{ten + "retry: {backoff: constant, initial: 5s, max_attempts: 5}", time.Minute},
		{ten + "retry: {backoff: list, delays: [1s, 2s], max_attempts: 4}", 35 * time.Second},
		{ten + "retry: {factor: 1, max_attempts: 100000}", 72 * time.Hour},
		{ten + "retry: {max: 4s, max_attempts: 5, max_age: 30s}", 30 * time.Second},
	} {
		if got := parse(t, program(tt.keys)).Tools[0].Horizon(); got != tt.want {
			t.Errorf("%s: horizon %v, want %v", tt.keys, got, tt.want)
		}
	}
}

func TestTermsAreCompleted(t *testing.T) {
	config.OfferAll(t)
	c := parse(t, `tools:
  - {name: a, exec: {argv: [x]}, guards: [{purpose: validate, exec: {argv: [x], timeout: 2s}}]}
  - {name: b, breaker: {failures: 5}, unknown_budget: {count: 3}, approval: required, sql: {statements: [SELECT 1]}}
  - {name: c, breaker: off, unknown_budget: off, approval: {mode: at_effect, expires_after: 2h}, exec: {argv: [x], umask: "0000", nice: 5},
     guards: [{purpose: validate, sql: {select: "SELECT 1"}}]}
`)
	b, last := c.Tools[1], c.Tools[2]
	if diff := cmp.Diff(config.Breaker{Failures: 5, Window: time.Minute, Cooldown: 30 * time.Second}, b.Breaker); diff != "" {
		t.Errorf("breaker (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(config.UnknownBudget{Count: 3, Per: time.Hour}, b.UnknownBudget); diff != "" {
		t.Errorf("budget (-want +got):\n%s", diff)
	}
	if b.Effect != "local" || b.Timeout != time.Second || b.Approval.Mode != "required" {
		t.Errorf("local tool: effect %q, timeout %v, approval %+v; want local, 1s, required", b.Effect, b.Timeout, b.Approval)
	}
	if last.Breaker.Failures != 0 || last.UnknownBudget.Count != 0 || last.Approval != (config.Approval{Mode: "at_effect", ExpiresAfter: 2 * time.Hour}) {
		t.Errorf("off: %+v, %+v; approval %+v", last.Breaker, last.UnknownBudget, last.Approval)
	}
	if u := last.Exec.Umask; u == nil || *u != 0 || last.Exec.Nice != 5 {
		t.Errorf("umask %v, nice %d; want 0 said, 5", u, last.Exec.Nice)
	}
	if g := c.Tools[0].Guards[0]; g.Timeout != 2*time.Second || g.Exec.Timeout != 0 {
		t.Errorf("guard's timeout %v, in its program %v; want 2s, resolved", g.Timeout, g.Exec.Timeout)
	}
	if g := last.Guards[0]; g.Timeout != 30*time.Second {
		t.Errorf("guard that says nothing has %v, want the tool's 30s", g.Timeout)
	}
}
