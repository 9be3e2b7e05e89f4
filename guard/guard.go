// Package guard decides whether an effect may still be produced, in front of
// every attempt and outside of any transaction. Any doubt is a refusal, and a
// refusal has no effect downstream.
//
// It checks that the stored request is the one that was accepted and that the
// tool still means what it meant then; and it asks the tool's guards who may do it
// now, and whether it still makes sense. Roles are looked up each time and never
// stored.
package guard

import (
	"github.com/outboxd/outboxd/contract"
)

// Refusal says why an effect must not be produced. It carries no value of the
// request.
type Refusal struct {
	Reason string // the reason that the entry ends with at its limit
	What   string // what does not fit, names only
}

// Error is the reason and what does not fit.
func (r *Refusal) Error() string { return r.Reason + ": " + r.What }

// The reasons.
const (
	Altered = "request_altered" // the row is not what was accepted
	Drift   = "contract_drift"  // the tool has changed its meaning since
)

// Check compares a stored operation with its own digest, which covers the revisions
// it was accepted under, and with today's tool, by the revisions in force. Its error is a *Refusal.
func Check(op *contract.Operation, tool *contract.Tool) error {
	if !contract.IsCanonical(op.Arguments) {
		return &Refusal{Altered, "arguments are not canonical JSON"}
	}
	if contract.RequestDigest(op.Scope, op.Arguments, op.Original) != op.RequestSum {
		return &Refusal{Altered, "request digest"}
	}
	switch op.WireKey {
	case contract.WireKey(tool.Wire, op.Scope):
	case contract.WireKey(contract.WireScope, op.Scope), contract.WireKey(contract.WireRaw, op.Scope):
		return &Refusal{Drift, "wire key mode"}
	default:
		return &Refusal{Altered, "wire key"}
	}
	if op.Effect != tool.Effect {
		return &Refusal{Drift, "effect class"}
	}
	if field := op.Revisions.Differ(tool.Revisions); field != "" {
		return &Refusal{Drift, field}
	}
	return nil
}
