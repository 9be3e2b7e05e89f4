package contract_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/contract"
)

func TestErrorsNamePathAndRangeButNoValue(t *testing.T) {
	const secret = "hunter2"
	inputs := []string{
		`{"a":{"pin":9007199254740993}}`,
		`{"a":"` + secret + `","a":1}`,
		`{"a":"` + secret + `"`,
		`{"a":"` + secret + `\ud800"}`,
		`{"a":"` + secret + `"} ` + secret,
		`{"a":` + secret + `}`,
		`{"a":"` + secret + "\xff\"}",
		strings.Repeat(`["`+secret+`",`, 33),
	}
	for _, raw := range inputs {
		_, err := contract.Canonical([]byte(raw))
		if err == nil || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "9007199254740993") {
			t.Errorf("Canonical(%q): %v, want an error without a value", raw, err)
		}
	}
	_, err := contract.Canonical([]byte(inputs[0]))
	const want = "/a/pin: number out of range; allowed: numbers from -(2^53-1) to 2^53-1 whose decimal value a 64-bit float gives back; send any other as a string"
	if err == nil || err.Error() != want {
		t.Errorf("error is %q, want %q", err, want)
	}
}

func TestErrorsOfHostileNamesAreShortAndPrintable(t *testing.T) {
	for _, name := range []string{strings.Repeat("é", 5000), `\u001b[2J`, `a\nb`} {
		_, err := contract.Canonical([]byte(`{"` + name + `":1e400}`))
		if err == nil || len(err.Error()) > 1500 || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) {
			t.Errorf("name %.20q: error is %q, want it short and printable", name, err)
		}
	}
}

func TestSizeIsLimitedAsInputAndAsCanonicalForm(t *testing.T) {
	full := `"` + strings.Repeat("x", contract.MaxBytes-2) + `"`
	for _, raw := range []string{full, full + "\n", "\r\n\t " + full + strings.Repeat(" ", 100_000)} {
		if got, err := contract.Canonical([]byte(raw)); err != nil || string(got) != full {
			t.Errorf("%d bytes: got %d (%v), want %d", len(raw), len(got), err, len(full))
		}
	}
	grown := "[1e15" + strings.Repeat(",1e15", 6000) + "]"
	for _, raw := range []string{`"` + full[1:len(full)-1] + `x"`, grown} {
		var wrong *contract.InputError
		if _, err := contract.Canonical([]byte(raw)); !errors.As(err, &wrong) || !strings.Contains(wrong.Allowed, "65536") {
			t.Errorf("%d bytes: %v, want the limit of 65536", len(raw), err)
		}
	}
	if _, err := contract.CanonicalLimit([]byte(grown), 1<<20); err != nil {
		t.Errorf("CanonicalLimit of 1 MiB: %v", err)
	}
}

func TestFiveMillionBracketsAreRefusedBeforeDecoding(t *testing.T) {
	for _, open := range []string{"[", `{"a":`, `[{"a":`} {
		raw := []byte(strings.Repeat(open, 5_000_000/len(open)))
		var wrong *contract.InputError
		if _, err := contract.CanonicalLimit(raw, len(raw)); !errors.As(err, &wrong) || wrong.What != "more than 32 levels" {
			t.Errorf("5,000,000 bytes of %q: %v, want too many levels", open, err)
		}
		if contract.IsCanonical(raw) {
			t.Errorf("5,000,000 bytes of %q are canonical", open)
		}
	}
}

func TestBracketsInStringsAreNoLevels(t *testing.T) {
	raw := []byte(`"` + strings.Repeat(`[{\"\\`, 100) + `"`)
	if got, err := contract.Canonical(raw); err != nil || !bytes.Equal(got, raw) {
		t.Errorf("Canonical(%.20q...) = %.20q..., %v", raw, got, err)
	}
}

func TestCanonicalSharesNoMemoryAndLeavesItsInputAlone(t *testing.T) {
	for _, text := range []string{`{"a":1,"b":2}`, `{"b":2, "a":1}`} {
		raw := []byte(text)
		got, err := contract.Canonical(raw)
		if err != nil || string(raw) != text {
			t.Fatalf("Canonical(%s) left %s, %v", text, raw, err)
		}
		for i := range raw {
			raw[i] = 'x'
		}
		if string(got) != `{"a":1,"b":2}` {
			t.Errorf("Canonical(%s) became %s with its input", text, got)
		}
	}
}

func TestShuffledMembersHaveOneForm(t *testing.T) {
	members := make([]string, 50)
	for i := range members {
		members[i] = fmt.Sprintf(`"member-%d\ud83d\ude%02x":%d`, i%7, i, i)
	}
	want := canonical(t, "{"+strings.Join(members, ",")+"}")
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		if got := canonical(t, "{ "+strings.Join(members, " , ")+" }"); got != want {
			t.Fatalf("another order gives %s, want %s", got, want)
		}
	}
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func canonical(t fataler, raw string) string {
	t.Helper()
	got, err := contract.Canonical([]byte(raw))
	if err != nil {
		t.Fatalf("Canonical(%q): %v", raw, err)
	}
	return string(got)
}
