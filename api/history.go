package api

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/projection"
)

// anySettle is the bell that rings whenever an operation settles.
const anySettle = ""

// lookPause is the least time between two looks of one who waits for a new row.
const lookPause = 20 * time.Millisecond

// page is which rows a call asks for.
type page struct {
	who         Principal
	turn, after int64
	limit       int
	wait        time.Duration
	aside       bool
}

func (c *call) page(names ...string) (p page, err error) {
	if p.who, err = c.named(append(names, "after", "limit")...); err != nil {
		return p, err
	}
	q, err := c.query(append(names, "after", "limit", "tenant", "subject")...)
	if err != nil {
		return p, err
	}
	if p.limit, err = c.limit(q); err != nil {
		return p, err
	}
	if p.turn, err = number(q, "turn"); err != nil {
		return p, err
	}
	if p.after, err = number(q, "after"); err != nil {
		return p, err
	}
	if text := q.Get("wait"); text != "" {
		if p.wait, err = time.ParseDuration(text); err != nil || p.wait < 0 || p.wait > MaxWait {
			return p, invalid(InputError{"wait", "is no duration, or out of range", "0s to 1h, with a unit"})
		}
	}
	return p, nil
}

func number(q url.Values, name string) (int64, error) {
	if q.Get(name) == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n < 0 {
		return 0, invalid(InputError{name, "is no number", "a whole number from 0"})
	}
	return n, nil
}

// history answers at once where there is a row behind after, else when one is
// written or the wait is over.
func (s *API) history(c *call) (reply, error) {
	p, err := c.page("turn", "wait")
	if err != nil {
		return reply{}, err
	}
	return s.awaitRows(c, p)
}

func (s *API) awaitRows(c *call, p page) (reply, error) {
	h, err := s.rows(c, p)
	if err != nil || p.wait == 0 || len(h.Rows) > 0 {
		return reply{200, h}, err
	}
	c.allow(p.wait)
	bell, leave := s.bell(anySettle)
	defer leave()
	over := time.NewTimer(p.wait)
	defer over.Stop()
	for pause, last := firstLook, false; ; pause = min(2*pause, lastLook) {
		if h, err = s.rows(c, p); err != nil || last || len(h.Rows) > 0 {
			return reply{200, h}, err
		}
		rest := time.After(lookPause)
		select {
		case <-bell:
			<-rest
		case <-time.After(pause):
		case <-over.C:
			last = true
		case <-stopping(c.Context()):
			last = true
		case <-c.Context().Done():
			return reply{}, c.Context().Err()
		}
	}
}

func (s *API) setAside(c *call) (reply, error) {
	p, err := c.page("wait")
	if err != nil {
		return reply{}, err
	}
	p.aside = true
	return s.awaitRows(c, p)
}

// rows reads a session with a page of its rows, without those of tools that the
// caller may not see.
func (s *API) rows(c *call, p page) (h History, err error) {
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	access := s.access.Load()
	h.Rows, h.Next = []HistoryRow{}, p.after
	err = s.d.Ledger.Read(ctx, func(v *ledger.View) error {
		found, err := projection.Find(v, p.who.Tenant, p.who.Subject, c.PathValue("name"))
		if err != nil {
			return err
		}
		h.Session = shown(found)
		list, err := projection.History(v, found, p.turn, p.after, p.limit)
		if p.aside {
			list, err = projection.SetAside(v, found, p.after, p.limit)
		}
		for _, r := range list {
			if h.Next = r.ID; access.covers(c.peer, p.who.Tenant, p.who.Subject, r.Tool) {
				h.Rows = append(h.Rows, shownRow(r))
			}
		}
		return err
	})
	return h, sessionProblem(err)
}

func (s *API) fetch(c *call) (reply, error) {
	var body Fetch
	if err := c.body(&body); err != nil {
		return reply{}, err
	}
	who, err := c.named()
	if err != nil {
		return reply{}, err
	}
	row, err := strconv.ParseInt(c.PathValue("row"), 10, 64)
	if err != nil || body.Turn < 1 {
		return reply{}, invalid(InputError{"turn", "is absent, or the row is no number", "the row that is set aside, and the current turn"})
	}
	if err := contract.CheckName("reason", body.Reason); err != nil {
		return reply{}, err
	}
	var fetched projection.Row
	err = s.writeSession(c, func(tx *ledger.Tx) error {
		found, err := projection.Find(tx, who.Tenant, who.Subject, c.PathValue("name"))
		if err != nil {
			return err
		}
		if fetched, err = projection.Fetch(tx, found, row, body.Turn, int64(c.peer.UID), body.Reason); err != nil {
			return err
		}
		if !c.access.covers(c.peer, who.Tenant, who.Subject, fetched.Tool) {
			return projection.ErrNotFound
		}
		return nil
	})
	if err != nil {
		return reply{}, err
	}
	s.Settled(anySettle)
	return ok(shownRow(fetched))
}
