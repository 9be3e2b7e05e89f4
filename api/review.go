package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/entry"
)

// Review is the body of a review: a decision about some entries.
type Review struct {
	Action  string         `json:"action"`           // retry, resolve, discard
	Refs    []string       `json:"refs,omitzero"`    // this, or a filter
	Tool    string         `json:"tool,omitzero"`    // with refs: one of another tool is refused
	Filter  *ReviewFilter  `json:"filter,omitzero"`  // of retry and discard
	Limit   int            `json:"limit,omitzero"`   // 1 to 1000 entries; 0: 100
	DryRun  bool           `json:"dry_run,omitzero"` // only count
	Reason  string         `json:"reason"`
	By      string         `json:"by,omitzero"`       // a note: the uid is the record
	Applied *bool          `json:"applied,omitzero"`  // of resolve
	Proof   jsontext.Value `json:"evidence,omitzero"` // of resolve
	Result  jsontext.Value `json:"result,omitzero"`   // of resolve applied: what callers get

	AcceptContract      bool `json:"accept_contract,omitzero"`
	AcceptDuplicateRisk bool `json:"accept_duplicate_risk,omitzero"`

	// New rounds begin one after the other, so many a second: half the tool's rate,
	// at most 100, unless it is said here. The first is due now or, where several
	// calls follow each other, at DueFrom: the due_next of the call before.
	PerSecond int       `json:"per_second,omitzero"` // 1 to 10000; 0: as above
	DueFrom   time.Time `json:"due_from,omitzero"`
}

// ReviewFilter selects dead and unknown entries; each field that is absent is any.
type ReviewFilter struct {
	States      []entry.State `json:"states,omitzero"` // dead, unknown
	Tool        string        `json:"tool,omitzero"`
	Reason      string        `json:"reason,omitzero"` // the code of why it was given up
	Fingerprint string        `json:"fingerprint,omitzero"`
	Before      time.Time     `json:"before,omitzero"` // it stands so since before that instant
	After       string        `json:"after,omitzero"`  // begin behind this status_ref
}

// ReviewResult is what a review came to.
type ReviewResult struct {
	Action  string          `json:"action"`
	DryRun  bool            `json:"dry_run,omitzero"`
	Matched int             `json:"matched"`           // that were looked at
	Done    int             `json:"done"`              // of a dry run: that would be
	Refused map[string]int  `json:"refused,omitzero"`  // how many by code
	Results []ReviewedEntry `json:"results,omitzero"`  // with refs: each of them
	Next    string          `json:"next,omitzero"`     // with a filter: after of the next call; empty: that was all
	DueNext time.Time       `json:"due_next,omitzero"` // due_from of the next call
}

// ReviewedEntry is what a review came to for one of its refs.
type ReviewedEntry struct {
	StatusRef string      `json:"status_ref"`
	Done      bool        `json:"done"`
	Code      string      `json:"code,omitzero"`   // why not
	Detail    string      `json:"detail,omitzero"` // and what to do
	State     entry.State `json:"state,omitzero"`  // at present; empty: there is none
	DueAt     time.Time   `json:"due_at,omitzero"`
}

// The bounds of a review.
const (
	reviewDefault = 100
	reviewBatch   = 50 // entries that one transaction moves
	reviewPace    = 100
	reviewTime    = 2 * time.Minute
)

func (s *API) review(c *call) (reply, error) {
	var body Review
	if err := c.body(&body); err != nil {
		return reply{}, err
	}
	r, err := body.decision()
	if err != nil {
		return reply{}, err
	}
	r.UID = c.peer.UID
	c.allow(reviewTime)
	ctx, cancel := context.WithTimeout(c.Context(), reviewTime)
	defer cancel()
	k := &reviewer{api: s, ctx: ctx, body: body, review: r, due: body.DueFrom,
		out: ReviewResult{Action: body.Action, DryRun: body.DryRun}}
	if body.Filter != nil {
		err = k.filtered(c)
	} else {
		err = k.named()
	}
	if err != nil {
		return reply{}, err
	}
	return ok(k.out)
}

// decision is what the body asks for, if it is one.
func (b *Review) decision() (r deadletter.Review, err error) {
	var wrong []InputError
	demand := func(ok bool, path, what, allowed string) {
		if !ok {
			wrong = append(wrong, InputError{path, what, allowed})
		}
	}
	resolve := b.Action == "resolve"
	actions := []string{"retry", "resolve", "discard"}
	demand(slices.Contains(actions, b.Action), "action", "is none", "retry, resolve, discard")
	demand((len(b.Refs) > 0) != (b.Filter != nil), "refs", "refs and filter, or neither", "one of them")
	demand(!resolve || b.Filter == nil, "filter", "is given", "refs: what became of an operation is known of each")
	demand(b.Tool == "" || b.Filter == nil, "tool", "is given beside a filter", "tool in the filter")
	demand(len(b.Refs) <= maxLimit, "refs", "are too many", "at most 1000")
	demand(b.Limit >= 0 && b.Limit <= maxLimit, "limit", "is out of range", "1 to 1000")
	demand(b.PerSecond >= 0 && b.PerSecond <= 10000, "per_second", "is out of range", "1 to 10000")
	demand(resolve == (b.Applied != nil), "applied", "is absent, or is not of this action", "true or false with resolve, else nothing")
	demand(resolve == (b.Proof != nil), "evidence", "is absent, or is not of this action", "what shows it, as JSON, with resolve; else nothing")
	demand(b.Result == nil || resolve && b.Applied != nil && *b.Applied, "result", "is given", "only where it is resolved as applied")
	demand(!b.AcceptDuplicateRisk || b.Action == "retry", "accept_duplicate_risk", "is given", "only with retry")
	demand(!b.AcceptContract || b.Action != "discard", "accept_contract", "is given", "only with retry and resolve")
	if b.Filter != nil {
		demand(!slices.ContainsFunc(b.Filter.States, func(st entry.State) bool { return st != entry.Dead && st != entry.Unknown }),
			"states", "cannot be reviewed", "dead, unknown")
	}
	wrong = append(wrong, notes(b.Reason, b.By)...)
	if len(wrong) > 0 {
		return r, invalid(wrong...)
	}
	r = deadletter.Review{Action: deadletter.Action(b.Action), By: b.By, Reason: b.Reason, Tool: b.Tool,
		AcceptContract: b.AcceptContract, AcceptRisk: b.AcceptDuplicateRisk}
	if resolve {
		r.Action = deadletter.ResolveNotApplied
		if *b.Applied {
			r.Action = deadletter.ResolveApplied
		}
		if r.Evidence, err = contract.Canonical(b.Proof); err != nil {
			return r, within("evidence", err)
		}
		if b.Result != nil {
			if r.Result, err = contract.Canonical(b.Result); err != nil {
				return r, within("result", err)
			}
		}
	}
	return r, nil
}

// notes are what is wrong with a reason or a note.
func notes(reason, by string) (wrong []InputError) {
	const most = 1000
	if reason == "" || len(reason) > most || !utf8.ValidString(reason) {
		wrong = append(wrong, InputError{"reason", "is absent or too long", "why, in 1 to 1000 bytes"})
	}
	if len(by) > most || !utf8.ValidString(by) {
		wrong = append(wrong, InputError{"by", "is too long", "up to 1000 bytes"})
	}
	return wrong
}

// within names the member that a value is wrong in.
func within(member string, err error) error {
	if in, ok := errors.AsType[*contract.InputError](err); ok {
		return invalid(InputError{member + in.Path, in.What, in.Allowed})
	}
	return fmt.Errorf("read %s: %w", member, err)
}

// selection is a filter with its cursor looked up.
func (s *API) selection(c *call, f ReviewFilter) (deadletter.Selection, error) {
	sel := deadletter.Selection{States: f.States, Tool: f.Tool, Reason: f.Reason, Fingerprint: f.Fingerprint, Before: f.Before}
	if f.After == "" {
		return sel, nil
	}
	op, err := s.find(c, f.After)
	sel.After = op.id
	return sel, err
}

// CancelBody is the body of a cancel.
type CancelBody struct {
	Reason string `json:"reason"`
	By     string `json:"by,omitzero"`
}

// cancel ends what has not been given up. It answers as a status does.
func (s *API) cancel(c *call) (reply, error) {
	var body CancelBody
	if err := c.body(&body); err != nil {
		return reply{}, err
	}
	if wrong := notes(body.Reason, body.By); len(wrong) > 0 {
		return reply{}, invalid(wrong...)
	}
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	k := &reviewer{api: s, ctx: ctx, body: Review{Refs: []string{c.PathValue("ref")}},
		review: deadletter.Review{Action: deadletter.Cancel, UID: c.peer.UID, Reason: body.Reason, By: body.By}}
	if err := k.named(); err != nil {
		return reply{}, err
	}
	op, err := s.find(c, c.PathValue("ref"))
	if err != nil {
		return reply{}, err
	}
	return asked(op)
}
