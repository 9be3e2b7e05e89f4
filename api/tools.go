package api

import (
	"context"
	"time"

	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/poller"
)

// Tool is one tool as an operator sees it.
type Tool struct {
	Name         string    `json:"name"`
	Configured   bool      `json:"configured"` // false: its entries wait
	Paused       bool      `json:"paused"`
	PauseReason  string    `json:"pause_reason,omitzero"`
	PausedAt     time.Time `json:"paused_at,omitzero"`
	Breaker      string    `json:"breaker"`                // closed, open (nothing starts), probing (one attempt at a time)
	BreakerUntil time.Time `json:"breaker_until,omitzero"` // when an open one begins to probe
	Load         *Load     `json:"load,omitzero"`          // in a list
}

// Load is what a tool has to do, in entries.
type Load struct {
	InFlight      int64     `json:"in_flight"`
	Due           int64     `json:"due"`   // could be attempted now, were it not for what is in the way
	Later         int64     `json:"later"` // pending, for a later time
	Waiting       int64     `json:"waiting"`
	Unknown       int64     `json:"unknown"`
	Dead          int64     `json:"dead"`
	OldestDueAt   time.Time `json:"oldest_due_at,omitzero"`
	OldestDueAge  float64   `json:"oldest_due_age_seconds"`
	OldestDoubtAt time.Time `json:"oldest_unknown_at,omitzero"`
	Parked        int64     `json:"parked"` // intake rows that wait for it to be configured
}

// Tools are in the order of their names.
type Tools struct {
	Tools  []Tool `json:"tools"`
	Intake Intake `json:"intake"`
}

// Intake is what stands before the tools: rows that applications inserted.
type Intake struct {
	Waiting int64    `json:"waiting"` // taken in at the next look
	Parked  int64    `json:"parked"`  // for tools that are not configured
	Refused int64    `json:"refused"` // see outboxd refused list
	Tools   []Parked `json:"parked_tools,omitzero"`
}

// Parked is a tool that is not configured and that rows wait for.
type Parked struct {
	Name string `json:"name"`
	Rows int64  `json:"rows"`
}

func (s *API) tools(c *call) (reply, error) {
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	list := Tools{}
	var err error
	if list.Tools, err = s.toolList(ctx); err != nil {
		return reply{}, err
	}
	var loads map[string]poller.Load
	var stock intake.Stock
	now := s.d.Ledger.Now()
	err = s.scan(c, func(v *ledger.View) (err error) {
		if stock, err = intake.Count(v); err == nil {
			loads, err = poller.Loads(v, now)
		}
		return err
	})
	if err != nil {
		return reply{}, err
	}
	list.Intake = Intake{Waiting: stock.Waiting, Parked: stock.Parked, Refused: stock.Refused}
	for _, p := range stock.Tools {
		list.Intake.Tools = append(list.Intake.Tools, Parked(p))
	}
	for i := range list.Tools {
		list.Tools[i].load(loads[list.Tools[i].Name], stock.Tools, now)
	}
	return ok(list)
}

func (t *Tool) load(l poller.Load, parked []intake.ParkedTool, now time.Time) {
	t.Load = &Load{InFlight: l.InFlight, Due: l.Due, Later: l.Later, Waiting: l.Waiting, Unknown: l.Unknown, Dead: l.Dead,
		OldestDueAt: l.OldestDue, OldestDoubtAt: l.OldestDoubt}
	if !l.OldestDue.IsZero() {
		t.Load.OldestDueAge = max(0, now.Sub(l.OldestDue).Seconds())
	}
	for _, p := range parked {
		if p.Name == t.Name {
			t.Load.Parked = p.Rows
		}
	}
}

func (s *API) toolList(ctx context.Context) ([]Tool, error) {
	known, err := s.d.Poller.Tools(ctx)
	if err != nil {
		return nil, err
	}
	list, now := make([]Tool, len(known)), s.d.Ledger.Now()
	for i, t := range known {
		list[i] = Tool{Name: t.Name, Configured: t.Configured, Paused: t.Paused, PauseReason: t.PauseReason, PausedAt: t.PausedAt,
			Breaker: "closed"}
		switch {
		case t.Breaker.IsZero():
		case now.Before(t.Breaker):
			list[i].Breaker, list[i].BreakerUntil = "open", t.Breaker
		default:
			list[i].Breaker = "probing"
		}
	}
	return list, nil
}
