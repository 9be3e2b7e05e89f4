package handler

import (
	"errors"
	"slices"
	"strings"
)

var (
	errPositional = errors.New("a parameter is a colon and a name; ?, @ and $ are not taken")
	errSecond     = errors.New("more than one statement: list them one by one")
)

// parameters lists the names of a statement's parameters, each once. It reads
// what SQLite's tokenizer reads (sqlite.org/lang_expr.html, lang_comment.html):
// strings, quoted names and comments hold none.
func parameters(text string) (names []string, err error) {
	ended := false
	for i := 0; i < len(text); {
		next := after(text, i)
		token := text[i:next]
		blank := strings.TrimSpace(token) == "" || strings.HasPrefix(token, "--") || strings.HasPrefix(token, "/*")
		switch {
		case blank:
		case ended:
			return nil, errSecond
		case token == ";":
			ended = true
		case token[0] == '?' || token[0] == '@' || token[0] == '$':
			return nil, errPositional
		case token[0] == ':' && len(token) == 1:
			return nil, errPositional
		case token[0] == ':' && !slices.Contains(names, token[1:]):
			names = append(names, token[1:])
		}
		i = next
	}
	return names, nil
}

// after is where the token that begins at i ends.
func after(s string, i int) int {
	switch c := s[i]; {
	case c == '\'' || c == '"' || c == '`':
		return quoted(s, i, c)
	case c == '[':
		return until(s, i, "]")
	case strings.HasPrefix(s[i:], "--"):
		return until(s, i, "\n")
	case strings.HasPrefix(s[i:], "/*"):
		return until(s, i+2, "*/")
	case c == ':' || nameByte(c):
		n := i + 1
		for n < len(s) && nameByte(s[n]) {
			n++
		}
		return n
	}
	return i + 1
}

// nameByte: what an unquoted name consists of; $ is part of one where it does not
// begin it.
func nameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// quoted ends behind the quote that is not doubled.
func quoted(s string, i int, q byte) int {
	for n := i + 1; n < len(s); n++ {
		if s[n] != q {
			continue
		}
		if n+1 < len(s) && s[n+1] == q {
			n++
			continue
		}
		return n + 1
	}
	return len(s)
}

func until(s string, i int, end string) int {
	if n := strings.Index(s[i:], end); n >= 0 {
		return i + n + len(end)
	}
	return len(s)
}
