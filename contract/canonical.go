package contract

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Canonical checks JSON strictly and gives it in the one form that is stored,
// sent and digested: RFC 8785 (members in order of their UTF-16 units, no white
// space, shortest numbers and strings). It refuses more than MaxBytes, a byte
// order mark, invalid UTF-8, more than MaxDepth levels, a member that appears
// twice, a lone surrogate, and every number that the canonical form would
// change or that lies beyond 2^53-1. The error is an *InputError. The result
// shares no memory with raw.
func Canonical(raw []byte) ([]byte, error) { return CanonicalLimit(raw, MaxBytes) }

// CanonicalLimit is Canonical with another limit of bytes, for the value as it
// is written, without the white space around it, and for its canonical form,
// which can be longer (1e15).
func CanonicalLimit(raw []byte, maxBytes int) ([]byte, error) {
	raw = bytes.TrimRight(raw, whiteSpace)
	if len(raw) <= maxBytes && provenCanonical(raw) {
		return bytes.Clone(raw), nil
	}
	if err := scan(raw, maxBytes); err != nil {
		return nil, err
	}
	value := jsontext.Value(bytes.Clone(raw))
	if err := value.Canonicalize(); err != nil {
		return nil, explain(raw, err)
	}
	if len(value) > maxBytes {
		return nil, tooLong(" in canonical form", len(value), maxBytes)
	}
	return value, nil
}

// IsCanonical reports whether b is what Canonical gives for it. Every stored
// JSON is asked at every read; one that is not canonical was not written by us.
// Its length is not looked at.
func IsCanonical(b []byte) bool {
	if provenCanonical(b) {
		return true
	}
	canonical, err := CanonicalLimit(b, len(b))
	return err == nil && bytes.Equal(canonical, b)
}
