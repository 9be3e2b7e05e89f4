package intake

import (
	"bytes"

	"github.com/outboxd/outboxd/contract"
)

// field is one text of an operation under the name that answers use.
type field struct {
	name  string
	value *string
}

func scopeFields(s *contract.Scope) []field {
	return []field{{"tenant_id", &s.Tenant}, {"subject_id", &s.Subject}, {"tool_name", &s.Tool}, {"idempotency_key", &s.Key}}
}

func revisionFields(r *contract.Revisions) []field {
	return []field{
		{"input_revision", &r.Input}, {"output_revision", &r.Output}, {"effect_revision", &r.Effect},
		{"handler_revision", &r.Handler}, {"producer_revision", &r.Producer}, {"policy_revision", &r.Policy},
	}
}

func originFields(o *contract.Origin) []field {
	return []field{
		{"provider", &o.Provider}, {"api_family", &o.APIFamily}, {"adapter_revision", &o.AdapterRevision},
		{"response_id", &o.ResponseID}, {"call_id", &o.CallID},
	}
}

// differ names every field in which a request is not the stored one. The trace
// is no part of that: a repetition comes with a trace of its own. The revisions are
// those in force: a repetition comes under the contract that a review has accepted.
// The digest is named only where nothing else is, since it follows from the rest:
// such a row was altered.
func differ(stored, asked *contract.Operation) []string {
	var d difference
	d.texts(scopeFields(&stored.Scope), scopeFields(&asked.Scope))
	d.unless("arguments", bytes.Equal(stored.Arguments, asked.Arguments))
	d.texts(revisionFields(&stored.Revisions), revisionFields(&asked.Revisions))
	d.texts(originFields(&stored.Origin), originFields(&asked.Origin))
	d.unless("not_before", stored.NotBefore.Equal(asked.NotBefore))
	d.unless("session", stored.Session == asked.Session)
	d.unless("turn", stored.Turn == asked.Turn)
	d.unless("parent", stored.Parent == asked.Parent)
	d.unless("request_sha256", len(d) > 0 || sumInForce(stored) == asked.RequestSum)
	return d
}

// sumInForce is the digest of the stored request under the revisions in force; of a
// row that is not what was accepted, as it stands.
func sumInForce(op *contract.Operation) [32]byte {
	if op.Revisions == op.Original || contract.RequestDigest(op.Scope, op.Arguments, op.Original) != op.RequestSum {
		return op.RequestSum
	}
	return contract.RequestDigest(op.Scope, op.Arguments, op.Revisions)
}

// difference is a list of the names of fields.
type difference []string

func (d *difference) unless(name string, same bool) {
	if !same {
		*d = append(*d, name)
	}
}

func (d *difference) texts(stored, asked []field) {
	for i, f := range stored {
		d.unless(f.name, *f.value == *asked[i].value)
	}
}
