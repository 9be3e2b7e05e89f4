package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Problem is one thing that is wrong. No part of it holds a secret.
type Problem struct {
	File         string // as given to Load or Parse; "environment" for a variable; "" for a tool declared in Go
	Line, Column int    // from 1; 0 where there is no position
	Path         string // the key, such as tools[0].http.url, or the variable; "" for the whole file
	Found        string // what stands there
	Allowed      string // what may stand there
}

// Error is the problem on one line: position, key, what was found, what is allowed.
func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
		}
		b.WriteString(": ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	return b.String() + "found " + p.Found + "; allowed: " + p.Allowed
}

// Problems is everything that is wrong with a config, in the order of position.
type Problems struct{ List []Problem }

// Error is every problem, one per line.
func (p *Problems) Error() string {
	lines := make([]string, len(p.List))
	for i, problem := range p.List {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// problemsOf sorts the list: the file by position, the environment after it.
// It returns nil if there is none.
func problemsOf(list []Problem) error {
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(
			compareBool(a.File == environment, b.File == environment),
			cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Path, b.Path))
	})
	return &Problems{List: slices.Compact(list)}
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// quote shows a value that is no secret: cut at 60 bytes, control characters escaped.
func quote(s string) string {
	const most = 60
	if len(s) <= most {
		return strconv.Quote(s)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "..."
}

// either lists words as a person would: a, b or c.
func either(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
