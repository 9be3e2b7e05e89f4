package audit

import (
	"slices"

	"github.com/google/uuid"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
)

// operation checks that the row could have been accepted and is what was
// accepted: everything that follows from the rest is computed again.
func (c *check) operation() {
	op := c.op
	ref, err := uuid.Parse(op.StatusRef)
	c.demand(err == nil && ref.Version() == 7 && ref.String() == op.StatusRef, OperationInvalid, "status_ref is no UUIDv7")
	c.names()
	effects := []entry.Effect{entry.Idempotent, entry.Queryable, entry.Local, entry.Opaque}
	c.demand(slices.Contains(effects, op.Effect), OperationInvalid, "unknown effect class")
	c.demand(c.effectFits(), DigestMismatch, "effect is another one than its revision was derived from")
	c.demand(op.WireKey == contract.WireKey(contract.WireScope, op.Scope) || c.rawKey(), DigestMismatch, "wire_key")
	c.demand(c.canonical(op.Arguments), OperationInvalid, "arguments are not canonical JSON")
	c.demand(contract.RequestDigest(op.Scope, op.Arguments, op.Original) == op.RequestSum, DigestMismatch, "request_sha256")
	c.demand(op.Turn == 0 || op.Turn > 0 && op.Session != "", OperationInvalid, "turn without a session, or out of range")
	if op.Parent != "" {
		parent, err := uuid.Parse(op.Parent)
		c.demand(err == nil && parent.Version() == 7, OperationInvalid, "parent is no status_ref")
	}
	c.demand(op.NotBefore.IsZero() || op.NotBefore.Year() >= 1970 && op.NotBefore.Year() <= 9999, OperationInvalid, "not_before is out of range")
}

func (c *check) names() {
	s, r := &c.op.Scope, &c.op.Revisions
	if *r != c.op.Original {
		c.revisions(&c.op.Original)
	}
	c.revisions(r)
	for _, err := range []error{
		contract.CheckName("tenant_id", s.Tenant),
		contract.CheckName("subject_id", s.Subject),
		contract.CheckName("tool_name", s.Tool),
		contract.CheckKey(s.Key),
	} {
		if err != nil {
			c.find(OperationInvalid, err.Error())
		}
	}
	if c.op.Session != "" {
		if err := contract.CheckName("session", c.op.Session); err != nil {
			c.find(OperationInvalid, err.Error())
		}
	}
}

// revisions: those it was accepted under, or those that a review accepted.
func (c *check) revisions(r *contract.Revisions) {
	for _, err := range []error{
		contract.CheckName("input_revision", r.Input),
		contract.CheckName("output_revision", r.Output),
		contract.CheckName("effect_revision", r.Effect),
		contract.CheckName("handler_revision", r.Handler),
		contract.CheckName("producer_revision", r.Producer),
		contract.CheckName("policy_revision", r.Policy),
	} {
		if err != nil {
			c.find(OperationInvalid, err.Error())
		}
	}
}

// derived are the effect revisions that no config declares, by class.
var derived = func() map[string]entry.Effect {
	m := map[string]entry.Effect{}
	for _, e := range []entry.Effect{entry.Idempotent, entry.Queryable, entry.Local, entry.Opaque} {
		for _, w := range []contract.WireMode{contract.WireScope, contract.WireRaw} {
			m[contract.EffectRevision(string(e), string(w))] = e
		}
	}
	return m
}()

// effectFits: where the revision was derived, it says which class it was derived from.
func (c *check) effectFits() bool {
	effect, known := derived[c.op.Original.Effect]
	return !known || effect == c.op.Effect
}

// rawKey: the tool said wire_key: raw when the operation was accepted.
func (c *check) rawKey() bool {
	return c.op.WireKey == c.op.Scope.Key && contract.CheckWireKey(contract.WireRaw, c.op.Scope.Key) == nil
}

func (c *check) canonical(b []byte) bool {
	return len(b) <= contract.MaxBytes && contract.IsCanonical(b)
}
