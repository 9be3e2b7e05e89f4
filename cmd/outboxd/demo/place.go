package demo

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// place is the directory in which everything happens.
type place struct{ dir string }

// longestBase leaves room for the names below it in a socket's address, which
// holds 107 bytes.
const longestBase = 60

func newPlace() (place, error) {
	base, err := filepath.Abs(os.TempDir())
	if err != nil || len(base) > longestBase {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, "outboxd-demo-")
	if err != nil {
		return place{}, fmt.Errorf("make a temporary directory: %w", err)
	}
	return place{dir}, nil
}

func (p place) path(name string) string { return filepath.Join(p.dir, name) }
func (p place) config() string          { return p.path("outboxd.yaml") }
func (p place) socket() string          { return p.path("outboxd.sock") }
func (p place) log() string             { return p.path("outboxd.log") }

const configText = `# Written by outboxd demo.
database:  {path: %q}
listen:    {socket: %q, socket_mode: "0600"}
log:       {level: info, format: json}
worker:    {drain_timeout: 5s}
retry:     {backoff: constant, initial: 1s, max: 2s, jitter: none}
operators: {uids: [%d]}
tools:
  - {name: receipt, effect: idempotent, http: {url: "%[4]s/receipt"}}
  - {name: courier, effect: idempotent, http: {url: "%[4]s/courier"}}
  - name: refund
    effect: queryable
    http:  {url: "%[4]s/refund"}
    query: {http: {url: "%[4]s/refund/{key}"}}
  - {name: label, effect: idempotent, http: {url: "%[4]s/label"}}
  - {name: parcel, effect: idempotent, http: {url: "%[4]s/parcel"}}
`

// configure writes the daemon's configuration for a downstream at address.
func (p place) configure(address string) error {
	text := fmt.Sprintf(configText, p.path("outbox.db"), p.socket(), os.Getuid(), address)
	if err := os.WriteFile(p.config(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

// openLog is where the daemon writes, after what an earlier one wrote.
func (p place) openLog() (*os.File, error) {
	f, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the daemon's log: %w", err)
	}
	return f, nil
}

// lastWords is the end of the daemon's log, at most some lines of it.
func (p place) lastWords() string {
	text, err := os.ReadFile(p.log())
	if err != nil {
		return ""
	}
	lines := bytes.SplitAfter(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-5):], nil))
}
