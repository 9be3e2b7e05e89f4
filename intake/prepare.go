package intake

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/outboxd/outboxd/contract"
)

// Prepared is a request that was found valid, with everything computed that
// needs no transaction. It is never changed: Accept may be repeated.
type Prepared struct {
	op   contract.Operation // without ID and AcceptedAt
	args []any              // of insertSQL, without accepted_at

	rule     contract.ApprovalRule
	approval *contract.Approval // that came with the request
}

// Scope is the identity that the operation will have, or has.
func (p *Prepared) Scope() contract.Scope { return p.op.Scope }

// Operation is what would be stored, without ID and AcceptedAt.
func (p *Prepared) Operation() contract.Operation { return p.op }

// Prepare checks a request against the tools of reg and computes its canonical
// form, digests, wire key and status_ref. It reads nothing but reg. The error is
// an *Invalid with every problem, not only the first.
func Prepare(reg *contract.Registry, r Request) (*Prepared, error) {
	var c checks
	tool := c.scope(reg, r.Scope)
	canonical := c.arguments(tool, r.Arguments)
	c.origin(reg, r.Origin)
	notBefore := c.notBefore(r.NotBefore)
	c.session(r.Session, r.Turn)
	c.trace(r.Trace)
	c.parent(r.Scope.Tool, r.Parent)
	if r.Approval != nil {
		given := *r.Approval
		r.Approval = &given
		c.approval(tool, &r)
	}
	if err := c.invalid(); err != nil {
		return nil, err
	}
	ref, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make status_ref: %w", err)
	}
	p := &Prepared{op: contract.Operation{
		StatusRef: ref.String(), Scope: r.Scope, Arguments: canonical,
		RequestSum: contract.RequestDigest(r.Scope, canonical, tool.Revisions),
		Effect:     tool.Effect, WireKey: contract.WireKey(tool.Wire, r.Scope), Revisions: tool.Revisions, Original: tool.Revisions,
		Origin: r.Origin, NotBefore: notBefore, Session: r.Session, Turn: r.Turn, Trace: r.Trace, Parent: r.Parent,
	}}
	p.args, p.rule, p.approval = row(&p.op), tool.Approval, r.Approval
	return p, nil
}

// checks collects what is wrong with a request.
type checks struct {
	problems   []contract.InputError
	keyMissing bool
	unknown    bool // the tool's name is fine, but no tool has it
}

func (c *checks) invalid() error {
	if len(c.problems) == 0 {
		return nil
	}
	code := InputInvalid
	switch {
	case c.unknown:
		code = ToolUnknown
	case c.keyMissing:
		code = KeyRequired
	}
	return &Invalid{Code: code, Problems: c.problems}
}

// add keeps a problem that another package found; path, where it is not empty,
// goes in front of the problem's own.
func (c *checks) add(path string, err error) {
	if err == nil {
		return
	}
	var found *contract.InputError
	if !errors.As(err, &found) {
		found = &contract.InputError{What: "cannot be read", Allowed: "a value of its kind"}
	}
	problem := *found
	problem.Path = path + problem.Path
	c.problems = append(c.problems, problem)
}

func (c *checks) refuse(path, what, allowed string) {
	c.add("", &contract.InputError{Path: path, What: what, Allowed: allowed})
}

// scope gives the tool, or nil with a problem.
func (c *checks) scope(reg *contract.Registry, s contract.Scope) *contract.Tool {
	c.add("", contract.CheckName("tenant_id", s.Tenant))
	c.add("", contract.CheckName("subject_id", s.Subject))
	named := contract.CheckName("tool_name", s.Tool)
	c.add("", named)
	keyed := contract.CheckKey(s.Key)
	c.add("", keyed)
	var missing *contract.InputError
	c.keyMissing = errors.As(keyed, &missing) && missing.Missing
	tool, known := reg.Lookup(s.Tool)
	switch {
	case known && keyed == nil:
		c.add("", contract.CheckWireKey(tool.Wire, s.Key))
	case !known && named == nil:
		c.unknown = true
		c.refuse("tool_name", "no tool has this name", "the name of a configured tool")
	}
	return tool
}

// arguments are canonical, and fit the tool's schema.
func (c *checks) arguments(tool *contract.Tool, raw []byte) []byte {
	canonical, err := contract.Canonical(raw)
	c.add("arguments", err)
	if err == nil && tool != nil {
		c.problems = append(c.problems, tool.Input.Check("arguments", canonical)...)
	}
	return canonical
}

func (c *checks) origin(reg *contract.Registry, o contract.Origin) {
	if !reg.KnowsOrigin(o) {
		c.refuse("provider", "names no registered profile, with api_family and adapter_revision", "one of the configured providers")
	}
	for _, f := range originFields(&o) {
		if *f.value != "" {
			c.add("", contract.CheckName(f.name, *f.value))
		}
	}
}

// The instants that every system the file may go to can write: RFC 3339 ends
// with the year 9999, and before 1970 some count unsigned.
const (
	firstInstant = 0
	lastInstant  = 253402300799999
)

// notBefore rounds up to the millisecond: not before is never early.
func (c *checks) notBefore(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	at := time.UnixMilli(t.UnixMilli()).UTC()
	if at.Before(t) {
		at = at.Add(time.Millisecond)
	}
	if ms := at.UnixMilli(); ms < firstInstant || ms > lastInstant {
		c.refuse("not_before", "is out of range", "an instant of the years 1970 to 9999")
	}
	return at
}

// lastTurn is the largest integer that every JSON reader keeps exact.
const lastTurn = 1<<53 - 1

func (c *checks) session(session string, turn int64) {
	if session != "" {
		c.add("", contract.CheckName("session", session))
	}
	switch {
	case turn < 0 || turn > lastTurn:
		c.refuse("turn", "is out of range", "1 to 2^53-1")
	case turn != 0 && session == "":
		c.refuse("turn", "stands without a session", "a turn of a session that is named")
	}
}

func (c *checks) trace(trace string) {
	if trace != "" && !isTraceparent(trace) {
		c.refuse("traceparent", "is no traceparent", "version, trace id, parent id and flags as W3C Trace Context has them")
	}
}
