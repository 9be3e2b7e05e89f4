package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/outboxd/outboxd/audit"
)

// Client calls the API over a transport: Socket, or Local. An answer that is an
// error is a *Problem, as the server gave it; any other error means that nothing
// was heard, or nothing that can be understood.
type Client struct{ http http.Client }

// NewClient returns a client over a transport. It follows no redirects.
func NewClient(transport http.RoundTripper) *Client {
	return &Client{http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}}
}

// ErrAmbiguous says that several operations have this tool and key, of different tenants
// or subjects.
var ErrAmbiguous = errors.New("several operations have this tool and key: name the status_ref, or tenant and subject")

// Submit submits a case and, with a wait, waits up to it for a settled state.
func (c *Client) Submit(ctx context.Context, body Case, wait time.Duration) (a Answer, err error) {
	return a, c.call(ctx, "POST", "/v1/operations", waiting(wait), body, &a)
}

// Status tells where an operation stands and, with a wait, waits up to it for a
// settled state.
func (c *Client) Status(ctx context.Context, ref string, wait time.Duration) (a Answer, err error) {
	return a, c.call(ctx, "GET", operationPath(ref), waiting(wait), nil, &a)
}

// Find is the status of the one operation that has the filter's tool and key, or
// ErrAmbiguous.
func (c *Client) Find(ctx context.Context, f Filter) (Answer, error) {
	f.Limit = 2
	page, err := c.List(ctx, f)
	if err != nil {
		return Answer{}, err
	}
	switch len(page.Operations) {
	case 0:
		return Answer{}, problem("NOT_FOUND")
	case 1:
		return c.Status(ctx, page.Operations[0].StatusRef, 0)
	}
	return Answer{}, ErrAmbiguous
}

// Reconcile asks the downstream now and answers as Status.
func (c *Client) Reconcile(ctx context.Context, ref string) (a Answer, err error) {
	return c.ReconcileExpected(ctx, ref, Expected{})
}

// ReconcileExpected does so only where the operation is what the caller takes it for:
// IDEMPOTENCY_CONFLICT names what differs.
func (c *Client) ReconcileExpected(ctx context.Context, ref string, e Expected) (a Answer, err error) {
	return a, c.call(ctx, "POST", operationPath(ref)+"/reconcile", nil, e, &a)
}

// Attempts is the evidence of an operation's attempts.
func (c *Client) Attempts(ctx context.Context, ref string) (list Attempts, err error) {
	return list, c.call(ctx, "GET", operationPath(ref)+"/attempts", nil, nil, &list)
}

// List is one page of what the filter selects.
func (c *Client) List(ctx context.Context, f Filter) (p Page, err error) {
	return p, c.call(ctx, "GET", "/v1/operations", f.query(), nil, &p)
}

// Refused is one page of the refused rows behind the id after, of up to limit
// rows; 0: 50.
func (c *Client) Refused(ctx context.Context, after int64, limit int) (p RefusedPage, err error) {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}}
	if limit != 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return p, c.call(ctx, "GET", "/v1/refused", q, nil, &p)
}

// Tools lists the tools.
func (c *Client) Tools(ctx context.Context) (list Tools, err error) {
	return list, c.call(ctx, "GET", "/v1/tools", nil, nil, &list)
}

// Pause stops claiming for a tool. An empty reason names the caller's uid.
func (c *Client) Pause(ctx context.Context, tool, reason string) (t Tool, err error) {
	return t, c.call(ctx, "POST", toolPath(tool)+"/pause", nil, Control{reason}, &t)
}

// Resume lets a paused tool go on.
func (c *Client) Resume(ctx context.Context, tool string) (t Tool, err error) {
	return t, c.call(ctx, "POST", toolPath(tool)+"/resume", nil, nil, &t)
}

// Audit recomputes everything.
func (c *Client) Audit(ctx context.Context) (*audit.Report, error) {
	r := new(audit.Report)
	return r, c.call(ctx, "GET", "/v1/audit", nil, nil, r)
}

func operationPath(ref string) string { return "/v1/operations/" + url.PathEscape(ref) }
func toolPath(name string) string     { return "/v1/tools/" + url.PathEscape(name) }

func waiting(d time.Duration) url.Values {
	if d == 0 {
		return nil
	}
	return url.Values{"wait": {d.String()}}
}

func (c *Client) call(ctx context.Context, method, path string, q url.Values, body, answer any) error {
	r, err := request(ctx, method, path, q, body)
	if err != nil {
		return err
	}
	res, err := c.http.Do(r)
	if err != nil {
		return fmt.Errorf("call the API: %w", err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return understand(res.StatusCode, raw, answer)
}

func request(ctx context.Context, method, path string, q url.Values, body any) (*http.Request, error) {
	target := "http://outboxd" + path
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if body == nil {
		return r, nil
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	// Without GetBody the transport cannot send it a second time.
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	r.Header.Set("Content-Type", "application/json")
	return r, nil
}

// understand decodes an answer. Members that a newer server adds are ignored.
func understand(status int, raw []byte, answer any) error {
	if status < http.StatusBadRequest {
		if err := json.Unmarshal(raw, answer); err != nil {
			return fmt.Errorf("decode the answer: %w", err)
		}
		return nil
	}
	p := new(Problem)
	if err := json.Unmarshal(raw, p); err != nil || p.Code == "" {
		return fmt.Errorf("decode the answer: HTTP status %d without a code", status)
	}
	return p
}
