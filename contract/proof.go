package contract

import (
	"bytes"
	"unicode/utf8"
)

// provenCanonical reports that b is canonical, at a fraction of the price of
// canonicalising it. False means only that it did not find out: b is spaced,
// unordered or wrong, or uses what the proof leaves to the slow way (exponents,
// long numbers, escapes or characters beyond U+FFFF in member names).
func provenCanonical(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	p := proof{rest: b}
	return p.value(MaxDepth) && len(p.rest) == 0
}

// proof holds what is not yet proven. Its methods take a piece of the grammar
// off the front, or report false.
type proof struct{ rest []byte }

// take removes c from the front, if it is there.
func (p *proof) take(c byte) bool {
	if len(p.rest) == 0 || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// value takes one value with at most the given levels of nesting.
func (p *proof) value(levels int) bool {
	if len(p.rest) == 0 {
		return false
	}
	switch p.rest[0] {
	case '{':
		return levels > 0 && p.object(levels-1)
	case '[':
		return levels > 0 && p.array(levels-1)
	case '"':
		_, ok := p.text()
		return ok
	case 't':
		return p.literal("true")
	case 'f':
		return p.literal("false")
	case 'n':
		return p.literal("null")
	default:
		return p.number()
	}
}

func (p *proof) array(levels int) bool {
	p.take('[')
	if p.take(']') {
		return true
	}
	for {
		if !p.value(levels) {
			return false
		}
		if !p.take(',') {
			return p.take(']')
		}
	}
}

func (p *proof) object(levels int) bool {
	p.take('{')
	if p.take('}') {
		return true
	}
	var last []byte
	for first := true; ; first = false {
		name, ok := p.text()
		if !ok || !sortable(name) || !first && bytes.Compare(last, name) >= 0 {
			return false
		}
		last = name
		if !p.take(':') || !p.value(levels) {
			return false
		}
		if !p.take(',') {
			return p.take('}')
		}
	}
}

// sortable reports whether a name stands for itself and sorts by its bytes as
// it does by UTF-16 units: those orders differ only beyond U+FFFF.
func sortable(name []byte) bool {
	for _, c := range name {
		if c == '\\' || c >= 0xf0 {
			return false
		}
	}
	return true
}

// text takes a string and gives what stands between its quotes.
func (p *proof) text() ([]byte, bool) {
	if !p.take('"') {
		return nil, false
	}
	rest := p.rest
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '"':
			p.rest = rest[i+1:]
			return rest[:i], true
		case c == '\\':
			n := escape(rest[i:])
			if n == 0 {
				return nil, false
			}
			i += n - 1
		case c < ' ':
			return nil, false
		}
	}
	return nil, false
}

// escape gives the length of the canonical escape at the beginning of b, or 0:
// quote, backslash, the five short ones, and four digits for the other control
// characters only (RFC 8785, 3.2.2.2).
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 || b[2] != '0' || b[3] != '0' {
			return 0
		}
		long := b[4] == '0' && bytes.IndexByte([]byte("01234567be"), b[5]) >= 0 ||
			b[4] == '1' && bytes.IndexByte([]byte("0123456789abcdef"), b[5]) >= 0
		if long {
			return 6
		}
	}
	return 0
}

func (p *proof) literal(word string) bool {
	rest, ok := bytes.CutPrefix(p.rest, []byte(word))
	p.rest = rest
	return ok
}

func (p *proof) number() bool {
	end := afterNumber(p.rest, 0)
	_, canonical := simple(p.rest[:end])
	p.rest = p.rest[end:]
	return canonical
}
