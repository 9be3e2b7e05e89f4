package config

import (
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The rules that hold here and where a configuration is used: each is told once.

// MaxNameBytes is how long a name or a key may be.
const MaxNameBytes = 255

// NameFault is the first thing that is wrong with a name.
type NameFault int

// What is wrong with a name, in the order in which it is looked for.
const (
	NameFine NameFault = iota
	NameEmpty
	NameTooLong    // more than MaxNameBytes
	NameNotUTF8    // somewhere
	NameControl    // a control character, as Unicode has it
	NameOuterSpace // white space, as Unicode has it, at either end
)

// FaultOfName says what is wrong with a name that is compared byte for byte.
func FaultOfName(name string) NameFault {
	switch {
	case name == "":
		return NameEmpty
	case len(name) > MaxNameBytes:
		return NameTooLong
	case !utf8.ValidString(name):
		return NameNotUTF8
	case strings.ContainsFunc(name, unicode.IsControl):
		return NameControl
	case strings.TrimSpace(name) != name:
		return NameOuterSpace
	}
	return NameFine
}

// unsettable are headers that belong to the protocol, to the transport or to us.
var unsettable = []string{
	"connection", "content-encoding", "content-length", "content-type", "expect", "idempotency-key",
	"outbox-attempt", "outbox-fencing-token", "outbox-operation", "proxy-connection", "te", "trailer",
	"traceparent", "transfer-encoding", "upgrade", "webhook-id", "webhook-signature", "webhook-timestamp",
}

// IsReservedHeader reports whether a header, in any case, is set for each request
// and cannot be configured.
func IsReservedHeader(name string) bool { return slices.Contains(unsettable, strings.ToLower(name)) }

// IsHeaderName reports whether name is a token of RFC 9110, 5.6.2.
func IsHeaderName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

// IsReservedVariable reports whether an environment variable is set for each
// call, or would let a program speak to the service manager in the daemon's name.
func IsReservedVariable(name string) bool {
	return name == "NOTIFY_SOCKET" || strings.HasPrefix(name, "OUTBOX_") ||
		strings.HasPrefix(name, "LISTEN_") || strings.HasPrefix(name, "WATCHDOG_")
}

// Port is the port that an http or https URL means, also where it names none.
func Port(u *url.URL) string {
	switch port := u.Port(); {
	case port != "":
		return port
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}
