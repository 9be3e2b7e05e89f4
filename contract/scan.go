package contract

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxBytes is how much JSON Canonical accepts, in bytes, as it is written, without
// the white space around it, and in its canonical form.
const MaxBytes = 65536

// MaxDepth is how deeply arrays and objects may be nested.
const MaxDepth = 32

// whiteSpace is what may stand around a JSON value (RFC 8259, 2).
const whiteSpace = " \t\r\n"

// boms are the byte order marks of UTF-8 and of both UTF-16.
var boms = [...]string{"\xef\xbb\xbf", "\xfe\xff", "\xff\xfe"}

// scan refuses, in one pass and before anything recurses, what a decoder might
// choke on, repair or misread: size, byte order mark, UTF-8, depth, numbers.
// Whether the rest is JSON is left to the decoder.
func scan(raw []byte, maxBytes int) error {
	if n := len(bytes.TrimLeft(raw, whiteSpace)); n > maxBytes {
		return tooLong("", n, maxBytes)
	}
	for _, bom := range boms {
		if bytes.HasPrefix(raw, []byte(bom)) {
			return &InputError{What: "starts with a BOM", Allowed: "JSON in UTF-8 without a byte order mark"}
		}
	}
	if !utf8.Valid(raw) {
		return &InputError{What: fmt.Sprintf("byte %d is not UTF-8", invalidUTF8(string(raw))), Allowed: "valid UTF-8"}
	}
	return scanTokens(raw)
}

func tooLong(form string, got, maxBytes int) *InputError {
	return &InputError{What: fmt.Sprintf("%d bytes%s", got, form), Allowed: fmt.Sprintf("at most %d bytes", maxBytes)}
}

// scanTokens looks at brackets and numbers outside strings.
func scanTokens(raw []byte) error {
	depth := 0
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '"':
			i = afterString(raw, i)
			continue
		case c == '[' || c == '{':
			if depth++; depth > MaxDepth {
				return at(raw, i, fmt.Sprintf("more than %d levels", MaxDepth), fmt.Sprintf("at most %d levels of arrays and objects", MaxDepth))
			}
		case c == ']' || c == '}':
			depth--
		case c == '-' || '0' <= c && c <= '9':
			end := afterNumber(raw, i)
			if what := checkNumber(raw[i:end]); what != "" {
				return at(raw, i, what, allowedNumber)
			}
			i = end
			continue
		}
		i++
	}
	return nil
}

// afterString gives the index behind the string that begins at i, or the end.
func afterString(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

// afterNumber gives the index behind what can be part of the number at i.
func afterNumber(raw []byte, i int) int {
	for ; i < len(raw); i++ {
		switch c := raw[i]; {
		case '0' <= c && c <= '9', c == '+', c == '-', c == '.', c == 'e', c == 'E':
		default:
			return i
		}
	}
	return len(raw)
}

// at gives the error for the value that begins at offset, with its path; or the
// decoder's own, if the input is no JSON already before it. The value itself is
// replaced: the decoder must not see it.
func at(raw []byte, offset int, what, allowed string) error {
	decoder := jsontext.NewDecoder(bytes.NewReader(append(bytes.Clone(raw[:offset]), '0')))
	for {
		_, err := decoder.ReadToken()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return &InputError{Path: capped(string(decoder.StackPointer())), What: what, Allowed: allowed}
		}
		if err != nil {
			return explain(raw, err)
		}
	}
}

// explain turns the decoder's error into ours, which quotes nothing of the input.
func explain(raw []byte, err error) error {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return &InputError{What: "not JSON", Allowed: "one JSON value (RFC 8259)"}
	}
	e := &InputError{Path: capped(string(syntax.JSONPointer)), Allowed: "one JSON value (RFC 8259)"}
	offset := min(int(syntax.ByteOffset), len(raw))
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		e.What, e.Allowed = "member appears twice", "each name once in an object"
	case loneSurrogate(raw[offset:]):
		e.What, e.Allowed = fmt.Sprintf("lone surrogate at byte %d", offset), `\ud800 to \udfff only as a pair`
	case len(bytes.TrimLeft(raw, whiteSpace)) == 0:
		e.What, e.Missing = "is empty", true
	case errors.Is(err, io.ErrUnexpectedEOF):
		e.What = "JSON that ends too early"
	default:
		e.What = fmt.Sprintf("no JSON at byte %d", offset)
	}
	return e
}

// loneSurrogate reports whether an escape at the beginning of b names half a pair.
func loneSurrogate(b []byte) bool {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return false
	}
	unit, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return err == nil && 0xd800 <= unit && unit <= 0xdfff
}
