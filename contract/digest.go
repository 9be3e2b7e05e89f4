package contract

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/go-json-experiment/json/jsontext"
)

// The domain tags: each digest is SHA-256 over its tag, one zero byte, and
// canonical JSON, so that no digest of one kind can be one of another. A change
// of what is digested is a new tag.
const (
	tagRequest  = "outboxd.request.v1\x00"
	tagResult   = "outboxd.result.v1\x00"
	tagBinding  = "outboxd.binding.v1\x00"
	tagWireKey  = "outboxd.wire-key.v1\x00"
	tagRevision = "outboxd.revision." // kind, then tagVersion
	tagVersion  = ".v1\x00"
)

// RequestDigest binds what is asked for: tenant, subject, tool, arguments and
// the revisions of input, output and effect. It does not contain the key, which
// is the identity of the execution and not of the business intent. args are
// canonical; the names passed CheckName (invalid UTF-8 counts as U+FFFD).
func RequestDigest(s Scope, args []byte, r Revisions) [32]byte {
	b := make([]byte, 0, len(args)+1024)
	b = append(b, tagRequest+`{"arguments":`...)
	b = append(b, args...)
	b = member(b, `,"effect_revision":`, r.Effect)
	b = member(b, `,"input_revision":`, r.Input)
	b = member(b, `,"output_revision":`, r.Output)
	b = member(b, `,"subject":`, s.Subject)
	b = member(b, `,"tenant":`, s.Tenant)
	b = member(b, `,"tool":`, s.Tool)
	return sha256.Sum256(append(b, '}'))
}

// ResultDigest binds a result, which is canonical JSON; no result is null.
func ResultDigest(result []byte) [32]byte {
	if len(result) == 0 {
		result = []byte("null")
	}
	b := make([]byte, 0, len(tagResult)+len(result))
	b = append(b, tagResult...)
	return sha256.Sum256(append(b, result...))
}

// Binding is all that a receipt ties together: the operation with its key, the
// provider's call that it came from, the contract, the request, the result and
// the downstream's own reference. What there is not is the empty string.
type Binding struct {
	StatusRef string
	Scope
	Revisions
	Provider, APIFamily, AdapterRevision string
	ResponseID, CallID                   string
	Request, Result                      [32]byte // RequestDigest, ResultDigest
	Reference                            string   // of the downstream
}

// Digest is the call binding digest of docs/contract.md.
func (v Binding) Digest() [32]byte {
	b := make([]byte, 0, 2048)
	b = append(b, tagBinding...)
	b = member(b, `{"adapter_revision":`, v.AdapterRevision)
	b = member(b, `,"api_family":`, v.APIFamily)
	b = member(b, `,"call_id":`, v.CallID)
	b = member(b, `,"effect_revision":`, v.Effect)
	b = member(b, `,"handler_revision":`, v.Handler)
	b = member(b, `,"idempotency_key":`, v.Key)
	b = member(b, `,"input_revision":`, v.Input)
	b = member(b, `,"output_revision":`, v.Output)
	b = member(b, `,"policy_revision":`, v.Policy)
	b = member(b, `,"producer_revision":`, v.Producer)
	b = member(b, `,"provider":`, v.Provider)
	b = member(b, `,"reference":`, v.Reference)
	b = hexMember(b, `,"request_sha256":"`, v.Request)
	b = member(b, `,"response_id":`, v.ResponseID)
	b = hexMember(b, `,"result_sha256":"`, v.Result)
	b = member(b, `,"status_ref":`, v.StatusRef)
	b = member(b, `,"subject":`, v.Subject)
	b = member(b, `,"tenant":`, v.Tenant)
	b = member(b, `,"tool":`, v.Tool)
	return sha256.Sum256(append(b, '}'))
}

func member(b []byte, name, value string) []byte {
	return appendString(append(b, name...), value)
}

func hexMember(b []byte, name string, digest [32]byte) []byte {
	return append(hex.AppendEncode(append(b, name...), digest[:]), '"')
}

// appendString writes a string as RFC 8785 does. Nearly every one is plain.
func appendString(b []byte, s string) []byte {
	if plain(s) {
		b = append(b, '"')
		b = append(b, s...)
		return append(b, '"')
	}
	b, _ = jsontext.AppendQuote(b, s) // the error is invalid UTF-8, replaced by U+FFFD as documented
	return b
}
