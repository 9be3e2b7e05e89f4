package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"

	"github.com/google/uuid"
)

// Fingerprint is the same for errors that differ in ids and numbers only: 12
// hexadecimal digits over tool, reason, code and the excerpt as Normal has it.
func Fingerprint(tool, reason, code, excerpt string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{tool, reason, code, Normal(excerpt)}, "\x00")))
	return hex.EncodeToString(sum[:6])
}

const uuidLength = 36 // in characters

// normalLength caps a normalised excerpt, in characters.
const normalLength = 120

// Normal is an excerpt without what differs from one entry to the other: ids,
// numbers and long tokens are a single #, and white space is one space.
func Normal(excerpt string) string {
	var out []rune
	text := []rune(excerpt)
	for i := 0; i < len(text); {
		if n := uuidLength; i+n <= len(text) && uuid.Validate(string(text[i:i+n])) == nil {
			out = append(out, '#')
			i += n
			continue
		}
		j := i
		for j < len(text) && (unicode.IsLetter(text[j]) || unicode.IsDigit(text[j])) {
			j++
		}
		if j > i {
			out = append(out, word(text[i:j])...)
			i = j
			continue
		}
		if !unicode.IsSpace(text[i]) {
			out = append(out, text[i])
		} else if len(out) > 0 && out[len(out)-1] != ' ' {
			out = append(out, ' ')
		}
		i++
	}
	out = []rune(joined(string(out)))
	return strings.TrimSpace(string(out[:min(len(out), normalLength)]))
}

// The shapes of a word that is an id: it mixes letters and digits, is hexadecimal
// or longer than words are.
const (
	mixed    = 3
	hexWord  = 8
	longWord = 24
)

func word(w []rune) []rune {
	digits, turns, isHex := 0, 0, true
	for i, r := range w {
		d := unicode.IsDigit(r)
		if d {
			digits++
		}
		if i > 0 && d != unicode.IsDigit(w[i-1]) {
			turns++
		}
		isHex = isHex && (d || strings.ContainsRune("abcdefABCDEF", r))
	}
	if turns >= mixed || digits > 0 && isHex && len(w) >= hexWord || len(w) >= longWord {
		return []rune{'#'}
	}
	if digits == 0 {
		return w
	}
	var out []rune
	for i, r := range w {
		if !unicode.IsDigit(r) {
			out = append(out, r)
		} else if i == 0 || !unicode.IsDigit(w[i-1]) {
			out = append(out, '#')
		}
	}
	return out
}

// joined makes one of numbers with nothing but a separator between them, as times,
// addresses and UUIDs have them.
func joined(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		between := i > 0 && i+1 < len(s) && s[i-1] == '#' && s[i+1] == '#' && strings.IndexByte("-:.,/_", s[i]) >= 0
		if between {
			i++
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
