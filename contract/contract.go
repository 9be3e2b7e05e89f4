// Package contract decides what an operation says: which JSON is accepted and
// what its one canonical form is, what a key and a name may look like, which
// digests bind a request, a result and a call, which key the downstream sees,
// and which tools there are, with their revisions.
//
// It promises that equal JSON has equal canonical bytes (RFC 8785) and no
// accepted number changes on the way; that digests and wire keys are the ones of
// docs/contract.md, which another language can reproduce; that no error carries
// a value; and that a Registry never changes. Comparing an operation with the
// stored one is left to intake, reading the config file to config.
package contract

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Scope is the identity of an operation: unique as long as it or its tombstone
// lives. Its values are compared byte for byte and never rewritten.
type Scope struct {
	Tenant, Subject, Tool, Key string
}

// Revisions name the contract under which an operation was accepted. A value is
// what the config declares, or derived from what the revision covers.
type Revisions struct {
	Input    string `json:"input"`    // schema of the arguments
	Output   string `json:"output"`   // schema of the result
	Effect   string `json:"effect"`   // effect class, wire key mode
	Handler  string `json:"handler"`  // kind, method and target of the handler and of the query
	Producer string `json:"producer"` // who produces the result
	Policy   string `json:"policy"`   // guards, approval rule
}

// InputError says what is wrong with an input, and what would be right. It
// never carries a value of the input; Path consists of member names.
type InputError struct {
	Path    string // JSON Pointer (RFC 6901), capped; or the name of a field; empty: the whole input
	What    string // what was found
	Allowed string // what is allowed
	Missing bool   // the value is absent, empty or blank: one meaning for all of them
}

// Error gives path, what was found and what is allowed in one line; a control
// character in a member name is escaped.
func (e *InputError) Error() string {
	text := e.What + "; allowed: " + e.Allowed
	if e.Path == "" {
		return text
	}
	if plain(e.Path) {
		return e.Path + ": " + text
	}
	return strconv.Quote(e.Path) + ": " + text
}

// maxPath caps the path of an error, in bytes: names can be as long as the input.
const maxPath = 200

func capped(path string) string {
	if len(path) <= maxPath {
		return path
	}
	return strings.ToValidUTF8(path[:maxPath], "") + "..."
}

// plain reports whether s is ASCII that JSON writes without an escape.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
