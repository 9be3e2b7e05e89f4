package api

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// Letter is a dead or unknown operation of a list.
type Letter struct {
	StatusRef   string      `json:"status_ref"`
	State       entry.State `json:"state"`
	Reason      string      `json:"reason"`
	Tool        string      `json:"tool"`
	Tenant      string      `json:"tenant_id"`
	Subject     string      `json:"subject_id"`
	Key         string      `json:"idempotency_key"`
	Attempts    int         `json:"attempts"`
	Round       int         `json:"round"`
	Since       time.Time   `json:"since"`
	DueAt       time.Time   `json:"due_at,omitzero"` // of an unknown that will be asked about; absent: it waits for a person
	Class       string      `json:"class,omitzero"`  // of the last evidence
	Code        string      `json:"code,omitzero"`
	Excerpt     string      `json:"excerpt,omitzero"`
	Fingerprint string      `json:"fingerprint"`
}

// Letters is a part of the dead and unknown operations, in the order of acceptance.
type Letters struct {
	Letters []Letter `json:"letters"`
	Next    string   `json:"next,omitzero"`
}

// LetterGroup is dead and unknown operations with one error.
type LetterGroup struct {
	Fingerprint string    `json:"fingerprint"`
	Tool        string    `json:"tool"`
	Reason      string    `json:"reason"`
	Code        string    `json:"code,omitzero"`
	Excerpt     string    `json:"excerpt,omitzero"` // ids and numbers are #
	Dead        int       `json:"dead"`
	Unknown     int       `json:"unknown"`
	First       time.Time `json:"first"`
	Last        time.Time `json:"last"`
	Example     string    `json:"example"` // status_ref
}

// LetterGroups are in the order of their size.
type LetterGroups struct {
	Groups []LetterGroup `json:"groups"`
}

// letterFilter is the query of a list of dead and unknown operations.
func (c *call) letterFilter(more ...string) (f ReviewFilter, limit int, err error) {
	q, err := c.query(append([]string{"state", "tool", "reason", "fingerprint", "before", "after"}, more...)...)
	if err != nil {
		return f, 0, err
	}
	if limit, err = c.limit(q); err != nil {
		return f, 0, err
	}
	f = ReviewFilter{Tool: q.Get("tool"), Reason: q.Get("reason"), Fingerprint: q.Get("fingerprint"), After: q.Get("after")}
	for _, word := range strings.Split(strings.Join(q["state"], ","), ",") {
		if word == "" {
			continue
		}
		if word != string(entry.Dead) && word != string(entry.Unknown) {
			return f, 0, invalid(InputError{"state", "cannot be reviewed", "dead, unknown"})
		}
		f.States = append(f.States, entry.State(word))
	}
	if text := q.Get("before"); text != "" {
		if f.Before, err = time.Parse(time.RFC3339, text); err != nil {
			return f, 0, invalid(InputError{"before", "is no instant", "an instant as RFC 3339 has it"})
		}
	}
	return f, limit, nil
}

func (s *API) dead(c *call) (reply, error) {
	f, limit, err := c.letterFilter("limit")
	if err != nil {
		return reply{}, err
	}
	sel, err := s.selection(c, f)
	if err != nil {
		return reply{}, err
	}
	var rows []deadletter.Letter
	err = s.scan(c, func(v *ledger.View) error {
		rows, err = sel.First(v, limit+1)
		return err
	})
	if err != nil {
		return reply{}, fmt.Errorf("list letters: %w", err)
	}
	list := Letters{Letters: []Letter{}}
	if len(rows) > limit {
		rows = rows[:limit]
		list.Next = rows[limit-1].StatusRef
	}
	for _, l := range rows {
		list.Letters = append(list.Letters, Letter{l.StatusRef, l.State, l.Reason, l.Tool, l.Tenant, l.Subject, l.Key,
			l.Attempts, l.Round, l.ChangedAt, l.DueAt, l.Class, l.Code, l.Excerpt, l.Fingerprint()})
	}
	return ok(list)
}

func (s *API) deadGroups(c *call) (reply, error) {
	f, _, err := c.letterFilter()
	if err != nil {
		return reply{}, err
	}
	sel, err := s.selection(c, f)
	if err != nil {
		return reply{}, err
	}
	var groups []deadletter.Group
	err = s.scan(c, func(v *ledger.View) error {
		groups, err = sel.Groups(v)
		return err
	})
	if err != nil {
		return reply{}, fmt.Errorf("group letters: %w", err)
	}
	list := LetterGroups{Groups: make([]LetterGroup, len(groups))}
	for i, g := range groups {
		list.Groups[i] = LetterGroup(g)
	}
	return ok(list)
}

// Detail is all that there is to know of one operation.
type Detail struct {
	Answer
	State      entry.State    `json:"state"`
	Tenant     string         `json:"tenant_id"`
	Subject    string         `json:"subject_id"`
	Arguments  jsontext.Value `json:"arguments"`
	WireKey    string         `json:"wire_key"`
	Effect     entry.Effect   `json:"effect"`
	AcceptedAt time.Time      `json:"accepted_at"`
	NotBefore  time.Time      `json:"not_before,omitzero"`
	ChangedAt  time.Time      `json:"changed_at"`

	Round         int       `json:"round"`
	RoundAt       time.Time `json:"round_at"`
	Failures      int       `json:"failures"` // of this round, as the next ones
	Lapses        int       `json:"lapses"`
	Queries       int       `json:"queries"`
	Suspect       bool      `json:"suspect,omitzero"`
	LastSentAt    time.Time `json:"last_sent_at,omitzero"`
	OverAt        time.Time `json:"over_at,omitzero"`        // when its last attempt is known to be over
	UnprovenSince time.Time `json:"unproven_since,omitzero"` // the first send that may have had an effect; absent: none

	Drift    string       `json:"contract_drift,omitzero"` // the first revision that is not today's
	Waits    []WaitReason `json:"waits"`                   // why it does not run now
	Evidence []Attempt    `json:"evidence"`                // the last 1000, the oldest of them first
	Reviews  []ReviewNote `json:"reviews"`
}

// WaitReason is one reason for which an operation does not run.
type WaitReason struct {
	Code  string    `json:"code"`
	What  string    `json:"what"`
	Until time.Time `json:"until,omitzero"`
}

// ReviewNote is a decision that was taken about an operation.
type ReviewNote struct {
	Action    string         `json:"action"`
	UID       int            `json:"uid"`
	By        string         `json:"by,omitzero"`
	Reason    string         `json:"reason"`
	Evidence  jsontext.Value `json:"evidence,omitzero"`
	Revisions jsontext.Value `json:"revisions,omitzero"`
	Before    entry.State    `json:"state_before"`
	After     entry.State    `json:"state_after"`
	Round     int            `json:"round"`
	At        time.Time      `json:"at"`
}

func (s *API) detail(c *call) (reply, error) {
	op, err := s.find(c, c.PathValue("ref"))
	if err != nil {
		return reply{}, err
	}
	answered, err := asked(op)
	if err != nil {
		return reply{}, err
	}
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	d := Detail{State: op.state, Tenant: op.tenant, Subject: op.subject, Waits: []WaitReason{}, Evidence: []Attempt{}, Reviews: []ReviewNote{}}
	d.Answer, _ = answered.body.(Answer)
	var due entry.Due
	err = s.d.Ledger.Read(ctx, func(v *ledger.View) (err error) {
		due, err = d.read(v, op.id, s.d.Poller.Work().Registry)
		return err
	})
	switch {
	case errors.Is(err, entry.ErrNotFound), errors.Is(err, sql.ErrNoRows):
		return reply{}, problem("NOT_FOUND") // purged since
	case err != nil:
		return reply{}, fmt.Errorf("read operation: %w", err)
	}
	if due.State != op.state {
		return s.detail(c) // it has moved in between
	}
	whys, err := s.d.Poller.Explain(ctx, due, op.reason)
	if err != nil {
		return reply{}, err
	}
	for _, w := range whys {
		d.Waits = append(d.Waits, WaitReason(w))
	}
	return ok(d)
}

func (d *Detail) read(v *ledger.View, id int64, reg *contract.Registry) (due entry.Due, err error) {
	if due, err = entry.Get(v, id); err != nil {
		return due, err
	}
	ops, err := intake.Load(v, []int64{id})
	if err != nil {
		return due, err
	}
	op := ops[id]
	if op == nil {
		return due, entry.ErrNotFound
	}
	d.Arguments, d.WireKey, d.Effect, d.AcceptedAt, d.NotBefore = op.Arguments, op.WireKey, op.Effect, op.AcceptedAt, op.NotBefore
	if !contract.IsCanonical(op.Arguments) {
		d.Arguments = jsontext.Value("null") // audit names it
	}
	if tool, ok := reg.Lookup(op.Scope.Tool); ok {
		d.Drift = op.Revisions.Differ(tool.Revisions)
	}
	d.Round, d.RoundAt, d.Failures, d.Lapses, d.Queries = due.Round, due.RoundAt, due.Failures, due.Lapses, due.Queries
	d.Suspect, d.LastSentAt, d.OverAt, d.UnprovenSince = due.Suspect, due.LastSentAt, due.OverAt, due.UnprovenSince
	if err := v.One(`SELECT changed_at FROM outbox_entry WHERE operation_id = ?`, id).Scan(&d.ChangedAt); err != nil {
		return due, err
	}
	if d.Evidence, err = evidence(v, id); err != nil {
		return due, err
	}
	reviews, err := deadletter.Reviews(v, id)
	for _, r := range reviews {
		d.Reviews = append(d.Reviews, ReviewNote{string(r.Action), r.UID, r.By, r.Reason, r.Evidence, r.Revisions,
			r.Before, r.After, r.Round, r.At})
	}
	return due, err
}

// Cancel ends what has not been given up.
func (c *Client) Cancel(ctx context.Context, ref, reason, by string) (a Answer, err error) {
	return a, c.call(ctx, "POST", operationPath(ref)+"/cancel", nil, CancelBody{reason, by}, &a)
}

// Review decides about dead and unknown operations.
func (c *Client) Review(ctx context.Context, body Review) (r ReviewResult, err error) {
	return r, c.call(ctx, "POST", "/v1/review", nil, body, &r)
}

// Detail is all that there is to know of one operation.
func (c *Client) Detail(ctx context.Context, ref string) (d Detail, err error) {
	return d, c.call(ctx, "GET", operationPath(ref)+"/detail", nil, nil, &d)
}

// Dead is one page of the dead and unknown operations that the filter selects, of
// up to limit; 0: 50.
func (c *Client) Dead(ctx context.Context, f ReviewFilter, limit int) (l Letters, err error) {
	q := f.query()
	if limit != 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return l, c.call(ctx, "GET", "/v1/dead", q, nil, &l)
}

// DeadGroups are the dead and unknown operations that the filter selects, by error.
func (c *Client) DeadGroups(ctx context.Context, f ReviewFilter) (g LetterGroups, err error) {
	return g, c.call(ctx, "GET", "/v1/dead/groups", f.query(), nil, &g)
}

func (f ReviewFilter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"tool": f.Tool, "reason": f.Reason, "fingerprint": f.Fingerprint, "after": f.After} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for _, st := range slices.Compact(slices.Sorted(slices.Values(f.States))) {
		q.Add("state", string(st))
	}
	if !f.Before.IsZero() {
		q.Set("before", f.Before.Format(time.RFC3339Nano))
	}
	return q
}
