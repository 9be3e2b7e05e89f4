package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxd/outboxd/config"
)

// parse is Parse for content that has to be right.
func parse(t *testing.T, text string, env ...string) *config.Config {
	t.Helper()
	c, err := config.Parse("c.yaml", []byte(text), env)
	if err != nil {
		t.Fatalf("Parse(%q, %q): %v", text, env, err)
	}
	return c
}

// refusal is Parse for content that has to be wrong.
func refusal(t *testing.T, text string, env ...string) string {
	t.Helper()
	c, err := config.Parse("c.yaml", []byte(text), env)
	var problems *config.Problems
	if !errors.As(err, &problems) || c != nil {
		t.Fatalf("Parse(%q, %q) = %v, %v; want nil and *Problems", text, env, c, err)
	}
	return err.Error()
}

func TestExampleIsCompleteAndLoads(t *testing.T) {
	c, err := config.Load("../examples/outboxd.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	base := config.Default()
	base.Database.Path, base.Listen.Socket = "/var/lib/outboxd/outbox.db", "/run/outboxd/outboxd.sock"
	base.Operators.GIDs = []int{}
	base.Principals, base.Providers, base.Tools = c.Principals, c.Providers, c.Tools
	if diff := cmp.Diff(base, *c); diff != "" {
		t.Errorf("example differs from the defaults that it states (-default +example):\n%s", diff)
	}
	if n := len(c.Tools); n != 3 {
		t.Fatalf("example has %d tools, want 3", n)
	}
}

func TestToolInheritsWhatItDoesNotSay(t *testing.T) {
	c := parse(t, `
worker: {concurrency: 9}
retry: {max: 1m, max_attempts: 5}
tools:
  - name: Mail.Send
    effect: queryable
    http: {url: "https://h/x", timeout: 7s, headers: [{name: X-Country, value: NO}]}
    query: {exec: {argv: [ask]}}
    retry: {initial: 3s, max_attempts: 8}
    rate: 100/m
`)
	retry := config.Default().Retry
	retry.Initial, retry.Max, retry.MaxAttempts = 3*time.Second, time.Minute, 8
	want := config.Tool{
		Name: "Mail.Send", Effect: "queryable", WireKey: "scope", Retry: retry,
		HTTP: &config.HTTP{URL: "https://h/x", Method: "POST", Headers: []config.Header{{Name: "X-Country", Value: "NO"}}},
		Query: &config.Query{
			Exec:    &config.Exec{Argv: []string{"ask"}, TryAgain: []int{75}},
			Timeout: 7 * time.Second, NotBefore: 7 * time.Second,
		},
		Timeout: 7 * time.Second, Concurrency: 4, Rate: config.Rate{Events: 100, Per: time.Minute},
		Approval: config.Approval{Mode: "none"},
	}
	if diff := cmp.Diff(want, c.Tools[0]); diff != "" {
		t.Errorf("tool (-want +got):\n%s", diff)
	}
}

func TestListsReplaceDefaults(t *testing.T) {
	c := parse(t, `
operators: {uids: [7, 8]}
retry: {backoff: list, delays: [1s, 2s]}
tools:
  - {name: a, exec: {argv: [x], try_again: []}}
  - {name: b, exec: {argv: [x, y]}, retry: {delays: [5s]}}
  - {name: c, exec: {argv: [x, z]}, retry: {backoff: constant}}
`)
	if diff := cmp.Diff([]int{7, 8}, c.Operators.UIDs); diff != "" {
		t.Errorf("operators.uids (-want +got):\n%s", diff)
	}
	if got := c.Tools[0].Exec.TryAgain; got == nil || len(got) != 0 {
		t.Errorf("try_again: [] = %v, want an empty list, not the default", got)
	}
	for i, want := range [][]time.Duration{{time.Second, 2 * time.Second}, {5 * time.Second}, nil} {
		if diff := cmp.Diff(want, c.Tools[i].Retry.Delays); diff != "" {
			t.Errorf("delays of tool %s (-want +got):\n%s", c.Tools[i].Name, diff)
		}
	}
	if empty := parse(t, "operators: {uids: []}"); len(empty.Operators.UIDs) != 0 {
		t.Errorf("operators.uids: [] = %v, want none", empty.Operators.UIDs)
	}
}

func TestValuesFollowFromOthers(t *testing.T) {
	c := parse(t, "lease: {ttl: 9s}\nworker: {concurrency: 1}")
	if c.Lease.Heartbeat != 3*time.Second || c.Worker.PerTool != 1 {
		t.Errorf("heartbeat %v, per_tool %d; want 3s, 1", c.Lease.Heartbeat, c.Worker.PerTool)
	}
}

func TestLayoutOfTheFileDoesNotMatter(t *testing.T) {
	want := parse(t, "log: {level: warn}\n")
	for name, text := range map[string]string{
		"CRLF":                   "log:\r\n  level: warn\r\n",
		"document marks":         "---\nlog: {level: warn}\n...\n",
		"no newline at the end":  "log: {level: warn}",
		"JSON":                   `{"log": {"level": "warn"}}`,
		"section commented out":  "log: {level: warn}\ntools:\n#  - name: a\nworker:\n",
		"quoted key and comment": "\"log\": # why\n  'level': \"warn\"\n",
	} {
		if diff := cmp.Diff(want, parse(t, text)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

func TestLoadReadsAfresh(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	for _, want := range []int{3, 5} {
		text := strings.Replace("worker: {concurrency: N}", "N", string(rune('0'+want)), 1)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path, nil)
		if err != nil || c.Worker.Concurrency != want {
			t.Fatalf("Load after writing %d = %+v, %v", want, c, err)
		}
	}
	if _, err := config.Load(path+".missing", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load of a missing file: %v, want fs.ErrNotExist", err)
	}
	if err := os.WriteFile(path, []byte("#"+strings.Repeat("x", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(path, nil); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("Load of a huge file: %v", err)
	}
}
