package contract

import (
	"time"

	"github.com/go-json-experiment/json"

	"github.com/outboxd/outboxd/entry"
)

// Origin is where a call came from, as far as a provider's adapter says; empty
// strings are what there is not.
type Origin struct {
	Provider, APIFamily, AdapterRevision string
	ResponseID, CallID                   string
}

// Operation is an accepted intent as it is stored. It never changes.
type Operation struct {
	ID         int64
	StatusRef  string // UUIDv7: its opaque public name
	Scope      Scope
	Arguments  []byte // canonical JSON
	RequestSum [32]byte
	Effect     entry.Effect // as accepted: a reload does not change it
	WireKey    string       // as accepted
	Revisions  Revisions    // in force: as accepted, or as a review accepted them since
	Original   Revisions    // as accepted: what RequestSum covers
	Origin     Origin
	NotBefore  time.Time // zero: at once
	Session    string    // empty: none
	Turn       int64     // of Session
	Trace      string    // W3C traceparent, empty: none
	Parent     string    // status_ref of the operation whose end enqueued it, empty: none
	AcceptedAt time.Time
}

// Bind is what a receipt of the operation ties together.
func (o *Operation) Bind(result [32]byte, reference string) Binding {
	return Binding{
		StatusRef: o.StatusRef, Scope: o.Scope, Revisions: o.Revisions,
		Provider: o.Origin.Provider, APIFamily: o.Origin.APIFamily, AdapterRevision: o.Origin.AdapterRevision,
		ResponseID: o.Origin.ResponseID, CallID: o.Origin.CallID,
		Request: o.RequestSum, Result: result, Reference: reference,
	}
}

// Encode is r as a review records it.
func (r Revisions) Encode() string {
	b := member(nil, `{"effect":`, r.Effect)
	b = member(b, `,"handler":`, r.Handler)
	b = member(b, `,"input":`, r.Input)
	b = member(b, `,"output":`, r.Output)
	b = member(b, `,"policy":`, r.Policy)
	return string(append(member(b, `,"producer":`, r.Producer), '}'))
}

// DecodeRevisions reads what Encode wrote. What is anything else is no
// revisions: they fit no tool.
func DecodeRevisions(text string) (r Revisions) {
	if json.Unmarshal([]byte(text), &r) != nil || r.Encode() != text {
		return Revisions{}
	}
	return r
}

// Differ names the first revision in which o is not r, as the API names it; ""
// when there is none.
func (r Revisions) Differ(o Revisions) string {
	for _, f := range []struct{ name, a, b string }{
		{"input_revision", r.Input, o.Input},
		{"output_revision", r.Output, o.Output},
		{"effect_revision", r.Effect, o.Effect},
		{"handler_revision", r.Handler, o.Handler},
		{"producer_revision", r.Producer, o.Producer},
		{"policy_revision", r.Policy, o.Policy},
	} {
		if f.a != f.b {
			return f.name
		}
	}
	return ""
}
