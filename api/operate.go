package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/outboxd/outboxd/audit"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/poller"
)

// Refused is a row of outbox_intake that could not be accepted. Its arguments
// are not shown.
type Refused struct {
	ID        int64     `json:"id"`
	Tenant    string    `json:"tenant_id"`
	Subject   string    `json:"subject_id"`
	Tool      string    `json:"tool_name"`
	Key       string    `json:"idempotency_key"`
	Code      string    `json:"code"`
	Message   string    `json:"message"`
	RefusedAt time.Time `json:"refused_at"`
}

// RefusedPage is a part of the refused rows, the oldest first.
type RefusedPage struct {
	Refused []Refused `json:"refused"`
	Next    int64     `json:"next,omitzero"` // as Page.Next: an id
}

// What an application inserts may be of any length: the first 255 characters
// of it are shown.
const refusedSQL = `SELECT id, substr(tenant_id, 1, 255), substr(subject_id, 1, 255), substr(tool_name, 1, 255),
	substr(idempotency_key, 1, 255), code, message, refused_at
	FROM outbox_refused WHERE id > ? ORDER BY id LIMIT ?`

func (s *API) refused(c *call) (reply, error) {
	q, err := c.query("after", "limit")
	if err != nil {
		return reply{}, err
	}
	limit, err := c.limit(q)
	if err != nil {
		return reply{}, err
	}
	var after int64
	if text := q.Get("after"); text != "" {
		if after, err = strconv.ParseInt(text, 10, 64); err != nil {
			return reply{}, invalid(InputError{"after", "is no number", "the next of the page before"})
		}
	}
	list := RefusedPage{Refused: []Refused{}}
	err = s.scan(c, func(v *ledger.View) error {
		return v.Each(func(r *ledger.Row) error {
			var x Refused
			err := r.Scan(&x.ID, &x.Tenant, &x.Subject, &x.Tool, &x.Key, &x.Code, &x.Message, &x.RefusedAt)
			list.Refused = append(list.Refused, x)
			return err
		}, refusedSQL, after, limit+1)
	})
	if err != nil {
		return reply{}, fmt.Errorf("list refused rows: %w", err)
	}
	if len(list.Refused) > limit {
		list.Refused = list.Refused[:limit]
		list.Next = list.Refused[limit-1].ID
	}
	return ok(list)
}

func (s *API) pause(c *call) (reply, error) {
	body := Control{Reason: "paused by uid " + strconv.Itoa(c.peer.UID)}
	if err := c.body(&body); err != nil {
		return reply{}, err
	}
	if err := contract.CheckName("reason", body.Reason); err != nil {
		return reply{}, err
	}
	return s.control(c, func(ctx context.Context, tool string) error {
		return s.d.Poller.Pause(ctx, tool, body.Reason)
	})
}

func (s *API) resume(c *call) (reply, error) {
	if err := c.body(&struct{}{}); err != nil {
		return reply{}, err
	}
	return s.control(c, s.d.Poller.Resume)
}

// control does something to the tool of the path and answers with how it is then.
func (s *API) control(c *call, do func(context.Context, string) error) (reply, error) {
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	name := c.PathValue("name")
	err := do(ctx, name)
	if errors.Is(err, poller.ErrUnknownTool) {
		return reply{}, problem("TOOL_UNKNOWN")
	}
	if err != nil {
		return reply{}, err
	}
	list, err := s.toolList(ctx)
	if err != nil {
		return reply{}, err
	}
	for _, t := range list {
		if t.Name == name {
			return ok(t)
		}
	}
	return reply{}, problem("TOOL_UNKNOWN")
}

// auditTime is how long an audit may take. It reads all that time: one runs at a
// time, and lists have places of their own.
const auditTime = time.Hour

func (s *API) audit(c *call) (reply, error) {
	leave, err := s.place(c, s.audits)
	if err != nil {
		return reply{}, fmt.Errorf("audit: %w", err)
	}
	defer leave()
	c.allow(auditTime)
	ctx, cancel := context.WithTimeout(c.Context(), auditTime)
	defer cancel()
	report, err := audit.Run(ctx, s.d.Ledger)
	if err != nil {
		return reply{}, fmt.Errorf("audit: %w", err)
	}
	return ok(report)
}
