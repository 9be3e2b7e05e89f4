package contract

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/outboxd/outboxd/config"
)

// MaxNameBytes is the length up to which keys and names are accepted, in bytes.
const MaxNameBytes = config.MaxNameBytes

const allowedName = "1 to 255 bytes of UTF-8 without control characters and without white space at either end"

// CheckKey checks an idempotency key: 1 to 255 bytes of valid UTF-8, no control
// character, no white space (as Unicode has it) at either end. It is never
// trimmed, folded or normalised: keys that look alike but differ in a byte are
// different keys. The error is an *InputError; Missing is set where there is no
// key to speak of.
func CheckKey(key string) error { return CheckName("idempotency_key", key) }

// CheckName checks the name of a tenant, a subject, a tool or a session by the
// rules of CheckKey; kind is the path that the error gives.
func CheckName(kind, value string) error {
	if strings.TrimSpace(value) == "" {
		return &InputError{Path: kind, What: "is absent, empty or blank", Allowed: allowedName, Missing: true}
	}
	if what := wrongInName(value); what != "" {
		return &InputError{Path: kind, What: what, Allowed: allowedName}
	}
	return nil
}

// CheckWireKey checks what a wire key mode demands of a key beyond CheckKey: a
// raw key goes into a header and must be printable ASCII. The error is an
// *InputError.
func CheckWireKey(mode WireMode, key string) error {
	if mode != WireRaw {
		return nil
	}
	for i := range len(key) {
		if c := key[i]; c < ' ' || c > '~' {
			return &InputError{
				Path:    "idempotency_key",
				What:    fmt.Sprintf("byte %d is not printable ASCII, and the tool sends the key as it is (wire_key: raw)", i),
				Allowed: "printable ASCII",
			}
		}
	}
	return nil
}

func wrongInName(value string) string {
	switch config.FaultOfName(value) {
	case config.NameTooLong:
		return fmt.Sprintf("has %d bytes", len(value))
	case config.NameNotUTF8:
		return fmt.Sprintf("byte %d is not UTF-8", invalidUTF8(value))
	case config.NameControl:
		return fmt.Sprintf("has a control character at byte %d", strings.IndexFunc(value, unicode.IsControl))
	case config.NameOuterSpace:
		return "begins or ends with white space"
	}
	return ""
}

// invalidUTF8 gives the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(s string) int {
	if utf8.ValidString(s) {
		return -1
	}
	for i, r := range s {
		if r != utf8.RuneError {
			continue
		}
		if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
			return i
		}
	}
	return -1
}
