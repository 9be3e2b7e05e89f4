package intake

import "strings"

// maxTrace caps a traceparent of a version that we do not know, in bytes.
const maxTrace = 255

// isTraceparent reports whether s has the form of W3C Trace Context (level 1,
// 3.2.2): for version 00 exactly four fields, for a later one at least those. Ids
// of zeros only and version ff are invalid.
func isTraceparent(s string) bool {
	if len(s) > maxTrace {
		return false
	}
	fields := strings.SplitN(s, "-", 5)
	if len(fields) < 4 || !hex(fields[0], 2) || fields[0] == "ff" {
		return false
	}
	if len(fields) == 5 && (fields[0] == "00" || !printable(fields[4])) {
		return false
	}
	return identifies(fields[1], 32) && identifies(fields[2], 16) && hex(fields[3], 2)
}

func identifies(s string, n int) bool { return hex(s, n) && strings.Trim(s, "0") != "" }

// hex: n digits, lower case only.
func hex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}

// printable: what may follow in a later version; it goes into a header.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
