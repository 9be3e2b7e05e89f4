package deadletter_test

import (
	"strings"
	"testing"

	"github.com/outboxd/outboxd/deadletter"
)

func TestAnExcerptIsWithoutIDsAndNumbers(t *testing.T) {
	for in, want := range map[string]string{
		"":                                   "",
		"order 17 is gone":                   "order # is gone",
		"order-18 is  gone\n":                "order-# is gone",
		"ORA-00942: no table":                "ORA-#: no table",
		"at 2031-05-01T12:00:00.5Z":          "at #T#Z",
		"connect 10.0.0.1:8080: refused":     "connect #: refused",
		"charge ch3MmlLrLkdIwHu7ix declined": "charge # declined",
		"id deadbeef01":                      "id #",
		"a facade of beads":                  "a facade of beads",
		"0190aaaa-bbbb-7ccc-8ddd-0123456789ab failed": "# failed",
		"token " + strings.Repeat("x", 30):            "token #",
		"größe 12 überschritten":                      "größe # überschritten",
		strings.Repeat("ab cd ", 50):                  strings.TrimSpace(strings.Repeat("ab cd ", 20)),
	} {
		if got := deadletter.Normal(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	same := deadletter.Fingerprint("t", "r", "c", "order 17") == deadletter.Fingerprint("t", "r", "c", "order 18")
	if other := deadletter.Fingerprint("t", "r", "d", "order 17") == deadletter.Fingerprint("t", "r", "c", "order 17"); !same || other {
		t.Errorf("got same %v, other code the same %v", same, other)
	}
}

// Whatever an excerpt is made of, it is normal once it has been made so.
func FuzzNormal(f *testing.F) {
	for _, seed := range []string{"order 17", "0190aaaa-bbbb-7ccc-8ddd-0123456789ab", "1-2-3 #-#", "\xff1\x00", "１２"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if got := deadletter.Normal(in); strings.ContainsAny(got, "0123456789") || len([]rune(got)) > 120 {
			t.Errorf("%q: got %q, want no digit and 120 characters", in, got)
		}
	})
}
