package api

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/poller"
)

// AfterIntent is the failure of a dispatch that stops once the intent is durable; the
// others are the poller's.
const AfterIntent = "after_intent_commit"

// dispatch accepts a case and, if it is new, has it attempted once: here, or by the
// daemon that runs. What is there already is answered as it stands, and nothing else is
// done: neither is it sent, nor is the downstream asked.
func (s *API) dispatch(c *call) (reply, error) {
	wait, err := c.wait("failure")
	if err != nil {
		return reply{}, err
	}
	failure := c.URL.Query().Get("failure")
	if err := s.failure(failure); err != nil {
		return reply{}, err
	}
	request, err := c.caseOf()
	if err != nil {
		return reply{}, err
	}
	a, _, err := s.accept(c, request)
	if err != nil {
		return reply{}, err
	}
	if a.New && a.State == entry.Pending && failure != AfterIntent {
		if err := s.attempt(c, a, request.Scope.Tool, failure, wait); err != nil {
			return reply{}, err
		}
	}
	op, err := s.find(c, a.StatusRef)
	if err != nil {
		return reply{}, err
	}
	v := judge(Dispatched, op.state, false)
	ans := op.answer(v)
	if op.state == entry.Delivered && a.New {
		ans.Delivery = string(op.how)
	}
	return reply{v.http, ans}, nil
}

// failure refuses what is none, and one beside a daemon, which would go on at once.
func (s *API) failure(name string) error {
	switch name {
	case "":
		return nil
	case AfterIntent, string(poller.AfterClaim), string(poller.AfterEffect):
		if s.d.Poller.Running() {
			return invalid(InputError{"failure", "a daemon is at work on this file and would go on at once", "a file that no daemon works on"})
		}
		return nil
	}
	return invalid(InputError{"failure", "no such failure", "after_intent_commit, after_claim, after_downstream_commit"})
}

func (s *API) attempt(c *call, a intake.Accepted, tool, failure string, wait time.Duration) error {
	if s.d.Poller.Running() {
		s.d.Poller.Wake()
		_, err := s.await(c, a.StatusRef, wait)
		return err
	}
	if t, ok := s.d.Poller.Work().Registry.Lookup(tool); ok {
		c.allow(t.Timeout + t.GuardTime + s.limits.accept)
	}
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	err := s.d.Poller.Dispatch(ctx, a.ID, poller.Stop(failure))
	if errors.Is(err, entry.ErrStale) {
		return nil // the present state is the answer
	}
	if errors.Is(err, poller.ErrNoGap) {
		return invalid(InputError{"failure", "the tool is local: its effect and its receipt are one commit", "after_intent_commit, after_claim"})
	}
	return err
}

// Dispatch submits a case and has it attempted once. failure is empty, or where to
// stop on purpose. Beside a daemon it waits up to wait for what comes of it.
func (c *Client) Dispatch(ctx context.Context, body Case, failure string, wait time.Duration) (a Answer, err error) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait", wait.String())
	}
	if failure != "" {
		q.Set("failure", failure)
	}
	return a, c.call(ctx, "POST", "/v1/dispatch", q, body, &a)
}

// ParseCase reads a case strictly. The error is a *Problem.
func ParseCase(raw []byte) (Case, error) {
	if len(raw) > MaxBody {
		return Case{}, problem("BODY_TOO_LARGE")
	}
	var got received
	if err := decode(raw, &got); err != nil {
		return Case{}, err
	}
	body, err := got.asCase()
	if err != nil {
		return Case{}, err
	}
	return *body, nil
}
