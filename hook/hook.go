// Package hook tells a tool what a person should know: that an entry was given up,
// that one is unknown and held, that a tool is paused or its breaker open, that the
// disk was full.
//
// It decides what is told and under which key. What it tells is an ordinary
// operation, enqueued in the commit in which the thing happened: it is sent, retried
// and given up as any other. About the hook's own tool nothing is told, so that one
// failure never makes another.
package hook

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// The events.
const (
	Dead    = "dead"
	Unknown = "unknown_held"
	Paused  = "tool_paused"
	Breaker = "breaker_open"
	Disk    = "disk_full" // told once it takes writes again
)

// The scope of what is told, beside the tool.
const (
	tenant  = "outboxd"
	subject = "hook"
)

// Hook tells one tool. It never changes; nil tells nobody.
type Hook struct {
	tool     string
	registry *contract.Registry
}

// New tells the tool of the registry that has this name; "" is nobody.
func New(registry *contract.Registry, tool string) *Hook {
	if tool == "" {
		return nil
	}
	return &Hook{tool, registry}
}

// notice is what is told: the arguments of the hook's operation. There is no payload
// in it, and no key.
type notice struct {
	Event     string    `json:"event"`
	Tool      string    `json:"tool,omitzero"`
	StatusRef string    `json:"status_ref,omitzero"`
	Tenant    string    `json:"tenant_id,omitzero"`
	Subject   string    `json:"subject_id,omitzero"`
	Reason    string    `json:"reason,omitzero"`
	Attempts  int       `json:"attempts,omitzero"`
	Since     time.Time `json:"since,omitzero"`
	At        time.Time `json:"at"`
}

const endedSQL = `SELECT o.status_ref, o.tool_name, o.tenant_id, o.subject_id, e.state, e.reason, e.attempts, e.round
	FROM outbox_entry AS e JOIN outbox_operation AS o ON o.id = e.operation_id
	WHERE e.operation_id = ? AND (e.state = 'dead' OR e.state = 'unknown' AND e.due_at IS NULL AND e.token IS NULL)`

// Ended tells of those of the operations that wait for a person now, in the
// transaction in which they came to that. It returns how many were new.
func (h *Hook) Ended(tx *ledger.Tx, operations []int64) (n int, err error) {
	if h == nil {
		return 0, nil
	}
	for _, id := range operations {
		told, err := h.ended(tx, id)
		if err != nil {
			return n, fmt.Errorf("tell the hook: %w", err)
		}
		if told {
			n++
		}
	}
	return n, nil
}

func (h *Hook) ended(tx *ledger.Tx, id int64) (bool, error) {
	var state entry.State
	var round int64
	var n notice
	err := tx.One(endedSQL, id).Scan(&n.StatusRef, &n.Tool, &n.Tenant, &n.Subject, &state, &n.Reason, &n.Attempts, &round)
	if errors.Is(err, sql.ErrNoRows) || err == nil && n.Tool == h.tool {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	n.Event = Dead
	if state == entry.Unknown {
		n.Event = Unknown
	}
	return h.tell(tx, n, fmt.Sprintf("%s/%s/%d/%s", n.Event, n.StatusRef, round, n.Reason))
}

// Tool tells what happened to a tool: Paused or Breaker.
func (h *Hook) Tool(tx *ledger.Tx, event, tool, reason string) error {
	if h == nil || tool == h.tool {
		return nil
	}
	_, err := h.tell(tx, notice{Event: event, Tool: tool, Reason: reason},
		fmt.Sprintf("%s/%s/%d", event, tool, tx.Now().UnixMilli()))
	if err != nil {
		return fmt.Errorf("tell the hook: %w", err)
	}
	return nil
}

// DiskFull tells that the disk took nothing for a while.
func (h *Hook) DiskFull(tx *ledger.Tx, since time.Time) error {
	if h == nil {
		return nil
	}
	since = since.UTC().Truncate(time.Millisecond)
	_, err := h.tell(tx, notice{Event: Disk, Since: since}, fmt.Sprintf("%s/%d", Disk, since.UnixMilli()))
	if err != nil {
		return fmt.Errorf("tell the hook: %w", err)
	}
	return nil
}

func (h *Hook) tell(tx *ledger.Tx, n notice, key string) (told bool, err error) {
	n.At = tx.Now().UTC()
	arguments, err := json.Marshal(n)
	if err != nil {
		return false, err
	}
	a, err := intake.Follow(tx, h.registry, intake.Request{
		Scope:     contract.Scope{Tenant: tenant, Subject: subject, Tool: h.tool, Key: key},
		Arguments: arguments,
	})
	return a.New, err
}
