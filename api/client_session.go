package api

import (
	"context"
	"net/url"
	"strconv"
	"time"
)

// OpenSession opens a session with its first turn.
func (c *Client) OpenSession(ctx context.Context, body OpenSession) (s Session, err error) {
	return s, c.call(ctx, "POST", "/v1/sessions", nil, body, &s)
}

// Session tells which turn of a session is current. who may be left out where the
// caller's scopes name one tenant and subject.
func (c *Client) Session(ctx context.Context, name string, who *Principal) (s Session, err error) {
	return s, c.call(ctx, "GET", sessionPath(name), owned(who), nil, &s)
}

// NextTurn ends the current turn and begins the next one.
func (c *Client) NextTurn(ctx context.Context, name string, who *Principal, b TurnControl) (s Session, err error) {
	return s, c.call(ctx, "POST", sessionPath(name)+"/turns", owned(who), b, &s)
}

// Interrupt closes the current turn's foreground and, unless it is a stop, begins the
// next turn in the same commit.
func (c *Client) Interrupt(ctx context.Context, name string, who *Principal, b TurnControl) (s Session, err error) {
	return s, c.call(ctx, "POST", sessionPath(name)+"/interrupt", owned(who), b, &s)
}

// History lists what was written to a session behind the row after: of one turn, or
// of all with 0. With a wait, and nothing there, it answers when a row is written.
func (c *Client) History(ctx context.Context, name string, who *Principal, turn, after int64, wait time.Duration) (h History, err error) {
	q := owned(who)
	q.Set("turn", strconv.FormatInt(turn, 10))
	q.Set("after", strconv.FormatInt(after, 10))
	if wait != 0 {
		q.Set("wait", wait.String())
	}
	return h, c.call(ctx, "GET", sessionPath(name)+"/history", q, nil, &h)
}

// SetAside lists what was set aside behind the row after, and waits for it as
// History does.
func (c *Client) SetAside(ctx context.Context, name string, who *Principal, after int64, wait time.Duration) (h History, err error) {
	q := owned(who)
	q.Set("after", strconv.FormatInt(after, 10))
	if wait != 0 {
		q.Set("wait", wait.String())
	}
	return h, c.call(ctx, "GET", sessionPath(name)+"/set-aside", q, nil, &h)
}

// Fetch puts what is set aside into the current turn.
func (c *Client) Fetch(ctx context.Context, name string, who *Principal, row int64, b Fetch) (r HistoryRow, err error) {
	return r, c.call(ctx, "POST", sessionPath(name)+"/set-aside/"+strconv.FormatInt(row, 10), owned(who), b, &r)
}

func sessionPath(name string) string { return "/v1/sessions/" + url.PathEscape(name) }

func owned(who *Principal) url.Values {
	q := url.Values{}
	if who != nil {
		q.Set("tenant", who.Tenant)
		q.Set("subject", who.Subject)
	}
	return q
}
