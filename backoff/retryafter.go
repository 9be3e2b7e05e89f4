package backoff

import (
	"net/http"
	"strings"
	"time"
)

// RetryAfter reads the value of a Retry-After field (RFC 9110, 10.2.3): whole
// seconds, or a date in any of the three forms of RFC 9110, 5.6.7. A negative
// number and a date that has passed are 0; more than Limit is Limit. False
// means that the value says nothing: wait as if it were not there. The policy's
// cap is the caller's to apply.
func RetryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.Trim(value, " \t")
	if wait, ok := seconds(value); ok {
		return wait, true
	}
	at, ok := date(value, now)
	if !ok {
		return 0, false
	}
	return min(max(at.Sub(now), 0), Limit), true
}

// seconds reads digits, with a minus before them that only broken servers send.
// It stops adding at Limit, so that no number of digits can overflow.
func seconds(value string) (time.Duration, bool) {
	digits, negative := strings.CutPrefix(value, "-")
	if digits == "" {
		return 0, false
	}
	const most = int64(Limit / time.Second)
	var n int64
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = min(n*10+int64(c-'0'), most)
	}
	if negative {
		return 0, true
	}
	return time.Duration(n) * time.Second, true
}

// date reads an HTTP date. Go would read any three letters as a zone of offset
// zero; HTTP knows only GMT.
func date(value string, now time.Time) (time.Time, bool) {
	at, err := http.ParseTime(value)
	if err != nil || strings.Contains(value, ",") && !strings.HasSuffix(value, " GMT") {
		return time.Time{}, false
	}
	if _, err := time.Parse(time.RFC850, value); err == nil {
		at = century(at, now)
	}
	return at, true
}

// century moves a date with a two-digit year into the hundred years that end
// 50 years from now (RFC 9110, 5.6.7).
func century(at, now time.Time) time.Time {
	for at.After(now.AddDate(50, 0, 0)) {
		at = at.AddDate(-100, 0, 0)
	}
	for !at.After(now.AddDate(-50, 0, 0)) {
		at = at.AddDate(100, 0, 0)
	}
	return at
}
