package contract

import (
	"crypto/sha256"
	"encoding/base64"
)

// WireMode says what the downstream sees as idempotency key.
type WireMode string

// The wire key modes.
const (
	WireScope WireMode = "scope" // a digest of the whole scope: two tenants' order-17 stay two
	WireRaw   WireMode = "raw"   // the caller's key: unique there, by the config's word
)

// WireKey is the idempotency key that the downstream sees: of WireRaw the key
// itself, else base64url without padding (43 characters) of a SHA-256 over the
// scope, as in docs/contract.md.
func WireKey(mode WireMode, s Scope) string {
	if mode == WireRaw {
		return s.Key
	}
	b := make([]byte, 0, 1024)
	b = append(b, tagWireKey...)
	b = member(b, `{"idempotency_key":`, s.Key)
	b = member(b, `,"subject":`, s.Subject)
	b = member(b, `,"tenant":`, s.Tenant)
	b = member(b, `,"tool":`, s.Tool)
	return encode(sha256.Sum256(append(b, '}')), sha256.Size)
}

// encode gives the first n bytes of a digest in base64url without padding.
func encode(digest [sha256.Size]byte, n int) string {
	var text [43]byte
	return string(base64.RawURLEncoding.AppendEncode(text[:0], digest[:n]))
}
