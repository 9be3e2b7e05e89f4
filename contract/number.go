package contract

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// largest holds the digits of 2^53-1, the largest integer that every JSON
// reader keeps exact (RFC 8259, 6).
const largest = "9007199254740991"

const allowedNumber = "numbers from -(2^53-1) to 2^53-1 whose decimal value a 64-bit float gives back; send any other as a string"

// exactDigits is how many decimal digits a 64-bit float always gives back.
const exactDigits = 15

// checkNumber says what is wrong with a number, or nothing. What is no JSON
// number passes: the decoder names it.
func checkNumber(token []byte) string {
	if exact, _ := simple(token); exact {
		return ""
	}
	number, ok := parseDecimal(token)
	if !ok {
		return ""
	}
	if number.beyond() {
		return "number out of range"
	}
	canonical, err := canonicalNumber(token)
	if err != nil {
		return ""
	}
	if kept, ok := parseDecimal(canonical); !ok || !kept.equal(number) {
		return "number that a 64-bit float would change"
	}
	return ""
}

// simple reports of a number without exponent and with few digits that it is
// kept exactly, and whether it is written canonically. It says false for every
// other token: they need the slow way.
func simple(token []byte) (exact, canonical bool) {
	digits := bytes.TrimPrefix(token, []byte("-"))
	whole, fraction, point := bytes.Cut(digits, []byte("."))
	if len(whole) == 0 || len(whole)+len(fraction) > exactDigits || point && len(fraction) == 0 {
		return false, false
	}
	if !allDigits(whole) || !allDigits(fraction) || len(whole) > 1 && whole[0] == '0' {
		return false, false
	}
	if !point {
		return true, digits[0] != '0' || len(token) == 1 // -0 is written 0
	}
	tiny := whole[0] == '0' && bytes.HasPrefix(fraction, []byte("000000")) // is written with an exponent
	return true, fraction[len(fraction)-1] != '0' && !tiny
}

func allDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// canonicalNumber writes a number as RFC 8785 does (section 3.2.2.3).
func canonicalNumber(token []byte) ([]byte, error) {
	return jsontext.AppendFormat(nil, token, jsontext.CanonicalizeRawInts(true), jsontext.CanonicalizeRawFloats(true))
}

// decimal is the magnitude of a number as written: 0.digits * 10^point, without
// zeros at either end of digits. Zero has no digits.
type decimal struct {
	digits []byte
	point  int
}

func (d decimal) equal(e decimal) bool {
	return d.point == e.point && bytes.Equal(d.digits, e.digits)
}

// beyond reports whether the value lies outside -(2^53-1) to 2^53-1.
func (d decimal) beyond() bool {
	return d.point > len(largest) || d.point == len(largest) && string(d.digits) > largest
}

// parseDecimal reads a number by the grammar of RFC 8259, section 6, in time
// linear in its length: the exponent is a count, never a power.
func parseDecimal(token []byte) (decimal, bool) {
	whole, rest := leadingDigits(bytes.TrimPrefix(token, []byte("-")))
	if len(whole) == 0 || len(whole) > 1 && whole[0] == '0' {
		return decimal{}, false
	}
	var fraction []byte
	if after, ok := bytes.CutPrefix(rest, []byte(".")); ok {
		if fraction, rest = leadingDigits(after); len(fraction) == 0 {
			return decimal{}, false
		}
	}
	exponent, ok := parseExponent(rest)
	if !ok {
		return decimal{}, false
	}
	digits := append(bytes.Clone(whole), fraction...)
	significant := bytes.TrimLeft(digits, "0")
	if len(significant) == 0 {
		return decimal{}, true
	}
	point := len(whole) - (len(digits) - len(significant)) + exponent
	return decimal{bytes.TrimRight(significant, "0"), point}, true
}

func leadingDigits(b []byte) (digits, rest []byte) {
	n := 0
	for n < len(b) && '0' <= b[n] && b[n] <= '9' {
		n++
	}
	return b[:n], b[n:]
}

// parseExponent reads an exponent, or nothing, which is 0. Beyond a billion it
// stays where it is: no input has so many digits that it could come back.
func parseExponent(b []byte) (exponent int, ok bool) {
	if len(b) == 0 {
		return 0, true
	}
	if b[0] != 'e' && b[0] != 'E' {
		return 0, false
	}
	sign := 1
	if b = b[1:]; len(b) > 0 && (b[0] == '+' || b[0] == '-') {
		if b[0] == '-' {
			sign = -1
		}
		b = b[1:]
	}
	for _, c := range b {
		exponent = min(exponent*10+int(c-'0'), 1_000_000_000)
	}
	return sign * exponent, len(b) > 0 && allDigits(b)
}
