package handler

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxExcerpt bounds Outcome.Excerpt and Answer.Excerpt, in bytes.
const MaxExcerpt = 2048

const (
	cutMark      = "…"
	redactedMark = "[redacted]"
	shortSecret  = 3 // below this a value is no secret, and hiding it would hide everything
	shortBody    = 8
)

// redactor hides what we sent in what came back: downstreams like to quote
// the request in their error pages.
type redactor struct{ secrets *strings.Replacer }

func newRedactor(secrets []string) redactor {
	var pairs []string
	secrets = slices.Clone(secrets) // other attempts sort them too
	sort.Slice(secrets, func(i, j int) bool { return len(secrets[i]) > len(secrets[j]) })
	for _, s := range secrets {
		if len(s) >= shortSecret {
			pairs = append(pairs, s, redactedMark)
		}
	}
	return redactor{strings.NewReplacer(pairs...)}
}

func (r redactor) hide(text, body []byte) string {
	s := string(text)
	if len(body) >= shortBody {
		s = strings.ReplaceAll(s, string(body), redactedMark)
		for _, quoted := range quotedForms(body) {
			s = strings.ReplaceAll(s, quoted, redactedMark)
		}
	}
	return r.secrets.Replace(s)
}

// quotedForms are the ways in which our JSON may stand inside a string of another
// JSON text, without the quotation marks around it.
func quotedForms(body []byte) []string {
	slashed := strings.NewReplacer("\\", "\\\\", `"`, `\"`).Replace(string(body))
	html := strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`)
	return []string{slashed, html.Replace(slashed), strings.ReplaceAll(slashed, "/", `\/`), toASCII(slashed)}
}

// toASCII escapes what is not ASCII as JSON does.
func toASCII(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.String()
}

// head is the beginning of a downstream's text as evidence. body is ours.
func (r redactor) head(text, body []byte) string {
	return beginning(escape(r.hide(text, body)), MaxExcerpt)
}

// tail is the end of a program's output as evidence.
func (r redactor) tail(text, body []byte, cut bool) string {
	s := escape(r.hide(text, body))
	start := 0
	if len(s) > MaxExcerpt-len(cutMark) {
		start, cut = len(s)-(MaxExcerpt-len(cutMark)), true
	}
	for start < len(s) && !utf8.RuneStart(s[start]) {
		start++
	}
	if cut {
		return cutMark + s[start:]
	}
	return s
}

// escape makes text safe for a terminal and a log: one line, printable runes
// only, everything else in Go's escapes.
func escape(s string) string {
	var b strings.Builder
	s = strings.TrimSpace(s)
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				b.WriteString(`\x` + hex(s[i]))
				continue
			}
		}
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRuneToASCII(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

func hex(b byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[b>>4], digits[b&15]})
}

// secretsOf lists the forms in which a URL of ours may be quoted.
func secretsOf(u *url.URL) []string {
	s := []string{u.String(), u.Redacted(), u.RawQuery, u.EscapedPath(), u.Path, u.RequestURI()}
	for _, values := range u.Query() {
		s = append(s, values...)
	}
	for _, pair := range strings.Split(u.RawQuery, "&") {
		_, value, _ := strings.Cut(pair, "=")
		s = append(s, value)
	}
	if u.User == nil {
		return s
	}
	password, _ := u.User.Password()
	plain := u.User.Username() + ":" + password
	return append(s, password, url.QueryEscape(password), plain, u.User.String(),
		base64.StdEncoding.EncodeToString([]byte(plain)))
}

// secretsOfHeader lists a header value and, without its scheme word, the
// credential in it.
func secretsOfHeader(value string) []string {
	s := []string{value}
	if fields := strings.Fields(value); len(fields) > 1 {
		s = append(s, fields[1:]...)
	}
	return s
}
