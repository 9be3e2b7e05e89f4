package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/projection"
)

// Session is a conversation as it stands.
type Session struct {
	Session  string    `json:"session"`
	Tenant   string    `json:"tenant_id"`
	Subject  string    `json:"subject_id"`
	Turn     int64     `json:"turn"` // the current one
	Open     bool      `json:"open"` // its foreground may be written
	OpenedAt time.Time `json:"opened_at"`
}

// OpenSession is the body that opens one.
type OpenSession struct {
	Principal *Principal `json:"principal,omitzero"` // as of a Case
	Session   string     `json:"session,omitzero"`   // its name; empty: one is made
}

// TurnControl is the body of what ends a turn.
type TurnControl struct {
	Turn int64 `json:"turn,omitzero"` // only if this is the current one; 0: whichever is
	Stop bool  `json:"stop,omitzero"` // of an interrupt: no next turn begins
}

// Fetch is the body that puts what is set aside into a turn.
type Fetch struct {
	Turn   int64  `json:"turn"`   // the current one, whose foreground is open
	Reason string `json:"reason"` // why an earlier task's result belongs there
}

// HistoryRow is a result in a session, with the decision that put it where it is.
type HistoryRow struct {
	Row         int64          `json:"row"`
	Decision    string         `json:"decision"`
	SourceTurn  int64          `json:"source_turn"`
	TargetTurn  int64          `json:"target_turn,omitzero"` // none: it is set aside
	CurrentTurn int64          `json:"current_turn"`         // as it was then
	SourceOpen  bool           `json:"source_open"`          // as it was then
	StatusRef   string         `json:"status_ref"`
	Tool        string         `json:"tool"`
	Status      string         `json:"status"` // what the operation came to
	Reason      string         `json:"reason,omitzero"`
	Result      jsontext.Value `json:"result,omitzero"`
	FetchedFrom int64          `json:"fetched_from,omitzero"`
	FetchedBy   *int64         `json:"fetched_by,omitzero"` // uid, of a row that was fetched
	Note        string         `json:"note,omitzero"`       // the reason of the fetch
	At          time.Time      `json:"at"`
}

// History is a part of a session's rows, the oldest first.
type History struct {
	Session Session      `json:"session"`
	Rows    []HistoryRow `json:"rows"`
	Next    int64        `json:"next"` // where the next call begins: its after
}

func (s *API) sessionRoutes() {
	s.route("POST /v1/sessions", s.openSession)
	s.route("GET /v1/sessions/{name}", s.session)
	s.route("POST /v1/sessions/{name}/turns", s.nextTurn)
	s.route("POST /v1/sessions/{name}/interrupt", s.interrupt)
	s.route("GET /v1/sessions/{name}/history", s.history)
	s.route("GET /v1/sessions/{name}/set-aside", s.setAside)
	s.route("POST /v1/sessions/{name}/set-aside/{row}", s.fetch)
}

func shown(p projection.Session) Session {
	return Session{p.Name, p.Tenant, p.Subject, p.Turn, p.Open, p.OpenedAt.UTC().Truncate(time.Millisecond)}
}

// owner is for whom the call is, as far as the caller may say so.
func (c *call) owner(who *Principal) (Principal, error) {
	if who == nil {
		only, one := c.access.only(c.peer)
		if !one {
			return Principal{}, invalid(InputError{"principal", "is absent", "tenant and subject of the session"})
		}
		who = &only
	}
	if err := names(who); err != nil {
		return Principal{}, err
	}
	if !c.access.owns(c.peer, who.Tenant, who.Subject) {
		return Principal{}, problem("AUTHORIZATION_DENIED")
	}
	return *who, nil
}

func (s *API) openSession(c *call) (reply, error) {
	var body OpenSession
	if err := c.body(&body); err != nil {
		return reply{}, err
	}
	who, err := c.owner(body.Principal)
	if err != nil {
		return reply{}, err
	}
	if body.Session == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return reply{}, fmt.Errorf("make a name: %w", err)
		}
		body.Session = id.String()
	}
	if err := contract.CheckName("session", body.Session); err != nil {
		return reply{}, err
	}
	var opened projection.Session
	err = s.writeSession(c, func(tx *ledger.Tx) (err error) {
		opened, err = projection.Open(tx, who.Tenant, who.Subject, body.Session)
		return err
	})
	if err != nil {
		return reply{}, err
	}
	return reply{201, shown(opened)}, nil
}

// named is whose session the path names: a caller who may see several says which.
func (c *call) named(more ...string) (who Principal, err error) {
	q, err := c.query(append(more, "tenant", "subject")...)
	if err != nil {
		return who, err
	}
	if q.Get("tenant") == "" && q.Get("subject") == "" {
		return c.owner(nil)
	}
	who, err = c.owner(&Principal{q.Get("tenant"), q.Get("subject")})
	if p, denied := errors.AsType[*Problem](err); denied && p.Code == "AUTHORIZATION_DENIED" {
		return who, noSession()
	}
	return who, err
}

func noSession() *Problem {
	p := problem("NOT_FOUND")
	p.Detail = "no such session, or nothing of it that is set aside, or it is not yours"
	return p
}

// writeSession commits a change; what a session refuses is a problem.
func (s *API) writeSession(c *call, fn func(*ledger.Tx) error) error {
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	return sessionProblem(s.d.Ledger.Write(ctx, fn))
}

func sessionProblem(err error) error {
	moved, ok := errors.AsType[*projection.MovedError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, projection.ErrNotFound):
		return noSession()
	case errors.Is(err, projection.ErrExists):
		return problem("SESSION_EXISTS")
	case ok:
		p := problem("TURN_MOVED")
		p.Detail = moved.Error()
		return p
	}
	return fmt.Errorf("session: %w", err)
}

func (s *API) findSession(c *call, who Principal) (found projection.Session, err error) {
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	err = s.d.Ledger.Read(ctx, func(v *ledger.View) (err error) {
		found, err = projection.Find(v, who.Tenant, who.Subject, c.PathValue("name"))
		return err
	})
	return found, sessionProblem(err)
}

func (s *API) session(c *call) (reply, error) {
	who, err := c.named()
	if err != nil {
		return reply{}, err
	}
	found, err := s.findSession(c, who)
	if err != nil {
		return reply{}, err
	}
	return ok(shown(found))
}

func (s *API) nextTurn(c *call) (reply, error) {
	return s.turn(c, func(tx *ledger.Tx, p projection.Session, b TurnControl) (projection.Session, error) {
		return projection.Advance(tx, p, b.Turn, projection.Next)
	})
}

// interrupt closes the current turn and, unless it is a stop, opens the next one in
// the same commit.
func (s *API) interrupt(c *call) (reply, error) {
	return s.turn(c, func(tx *ledger.Tx, p projection.Session, b TurnControl) (projection.Session, error) {
		if b.Stop {
			return projection.Stop(tx, p, b.Turn)
		}
		return projection.Advance(tx, p, b.Turn, projection.Interrupted)
	})
}

func (s *API) turn(c *call, do func(*ledger.Tx, projection.Session, TurnControl) (projection.Session, error)) (reply, error) {
	var body TurnControl
	if err := c.body(&body); err != nil {
		return reply{}, err
	}
	who, err := c.named()
	if err != nil {
		return reply{}, err
	}
	var now projection.Session
	err = s.writeSession(c, func(tx *ledger.Tx) error {
		found, err := projection.Find(tx, who.Tenant, who.Subject, c.PathValue("name"))
		if err != nil {
			return err
		}
		now, err = do(tx, found, body)
		return err
	})
	if err != nil {
		return reply{}, err
	}
	return ok(shown(now))
}

// row is a row as it is shown.
func shownRow(r projection.Row) HistoryRow {
	var by *int64
	if r.FetchedFrom != 0 {
		by = &r.FetchedBy // 0 is root
	}
	return HistoryRow{Row: r.ID, Decision: r.Decision, SourceTurn: r.SourceTurn, TargetTurn: r.TargetTurn,
		CurrentTurn: r.CurrentTurn, SourceOpen: r.SourceOpen, StatusRef: r.StatusRef, Tool: r.Tool,
		Status: entry.State(r.State).Status(), Reason: r.Reason, Result: r.Result, FetchedFrom: r.FetchedFrom,
		FetchedBy: by, Note: r.Note, At: r.At}
}
