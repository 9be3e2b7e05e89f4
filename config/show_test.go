package config_test

import (
	"strings"
	"testing"

	"github.com/outboxd/outboxd/config"
)

func TestSettingsSayWhereEachValueComesFrom(t *testing.T) {
	text := `database: {path: /x/o.db}
lease: {ttl: 60s}
retry: {max: 5m}
operators: {uids: [0, 7]}
tools:
  - name: Mail.Send
    effect: queryable
    rate: 20/s
    http: {url: "https://u:tok-55@mail.example:8443/hook/tok-55?sig=tok-55", timeout: 7s, headers: [{name: Authorization, value: tok-55}]}
    query: {http: {url: "https://mail.example/{key}"}}
    retry: {initial: 3s}
    breaker: off
  - {name: label, concurrency: 2, exec: {argv: [print, tok-55], env: [LANG, {name: A, value: tok-55}], umask: "0027"}}
`
	list, err := config.Settings("c.yaml", []byte(text), []string{"OUTBOXD_LOG_LEVEL=warn"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range list {
		got[s.Path] = s.Value + " | " + s.Origin
		if strings.Contains(s.Path+s.Value+s.Origin, "tok-55") {
			t.Errorf("%+v holds a secret", s)
		}
	}
	for path, want := range map[string]string{
		"database.path":                  "/x/o.db | c.yaml:1:18",
		"database.readers":               "4 | default",
		"database.allow_network_fs":      "false | default",
		"log.level":                      "warn | environment OUTBOXD_LOG_LEVEL",
		"listen.socket_mode":             "0660 | default",
		"lease.ttl":                      "1m | c.yaml:2:14",
		"lease.heartbeat":                "20s | from lease.ttl",
		"worker.per_tool":                "16 | from worker.concurrency",
		"operators.uids":                 "[0, 7] | c.yaml:4:19",
		"retry.max":                      "5m | c.yaml:3:14",
		"tools[0].name":                  "Mail.Send | c.yaml:6:11",
		"tools[0].retry.max":             "5m | from retry.max",
		"tools[0].retry.initial":         "3s | c.yaml:11:22",
		"tools[0].timeout":               "7s | c.yaml:9:87",
		"tools[0].query.not_before":      "7s | from tools[0].timeout",
		"tools[0].concurrency":           "16 | from worker.per_tool",
		"tools[0].rate":                  "20 per 1s | c.yaml:8:11",
		"tools[0].breaker":               "off | c.yaml:12:14",
		"tools[0].http.url":              "https://mail.example:8443/... (not shown) | c.yaml:9:17",
		"tools[0].http.method":           "POST | default",
		"tools[0].http.headers[0].name":  "Authorization | c.yaml:9:108",
		"tools[0].http.headers[0].value": "(not shown) | c.yaml:9:130",
		"tools[1].concurrency":           "2 | c.yaml:13:32",
		"tools[1].exec.argv":             "(2 values, not shown) | c.yaml:13:48",
		"tools[1].exec.try_again":        "[75] | default",
		"tools[1].exec.umask":            "0027 | c.yaml:13:111",
		"tools[1].exec.env[1].value":     "(not shown) | c.yaml:13:94",
	} {
		if got[path] != want {
			t.Errorf("%s: got %q, want %q", path, got[path], want)
		}
	}
	for _, path := range []string{"tools[0].key_window", "tools[0].http.timeout", "listen.socket", "tools[1].query", "tools[1].exec.env[0].value"} {
		if value, ok := got[path]; ok {
			t.Errorf("%s, which nobody said, is listed: %s", path, value)
		}
	}
	for _, s := range parse(t, text).Settings() {
		if value, _, _ := strings.Cut(got[s.Path], " | "); s.Path != "log.level" && value != s.Value || s.Origin != "" {
			t.Errorf("without origins, %s is %q, want %q", s.Path, s.Value, value)
		}
	}
	if _, err := config.Settings("c.yaml", []byte("log: {level: loud}"), nil); err == nil {
		t.Error("settings of a wrong config")
	}
}
