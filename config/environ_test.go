package config_test

import (
	"strings"
	"testing"
	"time"
)

func TestEnvironmentWinsOverTheFile(t *testing.T) {
	c := parse(t, "worker: {poll_interval: 2s, exclusive: true}\nlog:\n",
		"PATH=/bin", "OUTBOXD_WORKER_POLL_INTERVAL=300ms", "OUTBOXD_WORKER_EXCLUSIVE=false",
		"OUTBOXD_DATABASE_PATH=007", "OUTBOXD_LISTEN_SOCKET_MODE=0600", "OUTBOXD_RETRY_FACTOR=3",
		"OUTBOXD_RETRY_MAX_ATTEMPTS=4", "OUTBOXD_LOG_LEVEL=debug", "OUTBOXD_LOG_FORMAT=",
		"OUTBOXD_SHOP_TOKEN=s3cret")
	if c.Worker.PollInterval != 300*time.Millisecond || c.Worker.Exclusive || c.Database.Path != "007" ||
		c.Listen.SocketMode != 0o600 || c.Retry.Factor != 3 || c.Retry.MaxAttempts != 4 ||
		c.Log.Level != "debug" || c.Log.Format != "auto" {
		t.Errorf("config = %+v", c)
	}
}

func TestEnvironmentMayReplaceWhatIsContradictory(t *testing.T) {
	parse(t, "lease: {ttl: 5s, heartbeat: 6s}", "OUTBOXD_LEASE_TTL=20s")
	got := refusal(t, "lease: {ttl: 20s, heartbeat: 6s}", "OUTBOXD_LEASE_HEARTBEAT=25s")
	if want := "environment: OUTBOXD_LEASE_HEARTBEAT (lease.heartbeat): found 25s with ttl 20s"; !strings.HasPrefix(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestEnvironmentRefusals(t *testing.T) {
	for entry, want := range map[string]string{
		"OUTBOXD_WORKER_POLL_INTERVAL=30": `OUTBOXD_WORKER_POLL_INTERVAL (worker.poll_interval): found "30", unit missing; allowed: a duration with a unit, 10ms to 5m, for example 30s`,
		"OUTBOXD_LEASE_TTL=2h":            "OUTBOXD_LEASE_TTL (lease.ttl): found 2h; allowed: 1s to 1h",
		"OUTBOXD_WORKER_EXCLUSIVE=no":     `found "no"; allowed: true or false`,
		"OUTBOXD_WORKER_CONCURRENCY=0x8":  "found the number 0x8",
		"OUTBOXD_WORKER_CONCURRENCY=many": `found "many"; allowed: a whole number in plain decimal digits, 1 to 10000`,
		"OUTBOXD_LISTEN_SOCKET_MODE=660":  `found "660"`,
		"OUTBOXD_LOG_LEVEL=[info]":        `found "[info]"; allowed: debug, info, warn or error`,
		"OUTBOXD_WORKER_CONCURENCY=8":     "OUTBOXD_WORKER_CONCURENCY (no such setting): found an unknown variable; allowed: did you mean OUTBOXD_WORKER_CONCURRENCY?",
		"OUTBOXD_WROKER_CONCURRENCY=8":    "did you mean OUTBOXD_WORKER_CONCURRENCY?",
		"OUTBOXD_RETRY_DELAYS=1s":         "the path of a single value outside lists",
		"OUTBOXD_TOOLS_0_NAME=x":          "(no such setting): found an unknown variable",
	} {
		got := refusal(t, "log: {}", entry)
		if !strings.HasPrefix(got, "environment: ") || !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%s\n got: %s\nwant: %s", entry, got, want)
		}
	}
}
