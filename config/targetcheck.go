package config

import (
	"fmt"
	"slices"
	"strings"
)

// http checks one HTTP target. Nothing of a URL or a header's value is quoted.
func (r *report) http(path string, h HTTP, query bool) {
	if fault := urlFault(h.URL, query, "http", "https"); fault != "" {
		allowed := "http:// or https://, host, path"
		if query {
			allowed += " with {key} or {ref} in it"
		}
		r.refuse(path+".url", fault, allowed)
	}
	methods := []string{"POST", "PUT"}
	if query {
		methods = []string{"GET"}
	}
	if h.Method != "" && !slices.Contains(methods, h.Method) {
		r.refuse(path+".method", quote(h.Method), either(methods))
	}
	if h.Proxy != "" {
		if fault := urlFault(h.Proxy, false, "http", "https", "socks5"); fault != "" {
			r.refuse(path+".proxy", fault, "http://, https:// or socks5:// and host")
		}
	}
	r.certificates(path, h)
	if h.Sign != nil && h.Sign.SecretsFile == "" {
		r.refuse(path+".sign.secrets_file", "nothing", "the path of a file with one or two secrets")
	}
	for i, header := range h.Headers {
		r.header(fmt.Sprintf("%s.headers[%d]", path, i), header)
		for _, other := range h.Headers[:i] {
			if strings.EqualFold(other.Name, header.Name) && IsHeaderName(header.Name) {
				r.refuse(fmt.Sprintf("%s.headers[%d].name", path, i), quote(header.Name)+" a second time", "each header once, whatever its case")
				break
			}
		}
	}
}

func (r *report) certificates(path string, h HTTP) {
	if (h.CertFile == "") != (h.KeyFile == "") {
		r.refuse(path, "one of cert_file and key_file", "both or neither", path+".cert_file", path+".key_file")
	}
	if strings.HasPrefix(strings.ToLower(h.URL), "http:") && (h.CAFile != "" || h.CertFile != "") {
		r.refuse(path+".url", "certificates with a URL that is not encrypted", "https://, or neither ca_file nor cert_file")
	}
}

func (r *report) header(path string, h Header) {
	switch {
	case !IsHeaderName(h.Name):
		r.refuse(path+".name", "a name that is no header name", "letters, digits and - (RFC 9110, token)")
	case IsReservedHeader(h.Name):
		r.refuse(path+".name", quote(h.Name)+", which is set for each request", "another header")
	}
	if strings.ContainsFunc(h.Value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		r.refuse(path+".value", "a value with a line break or another control character", "one line of text")
	}
	if (h.Value == "") == (h.ValueFile == "") {
		r.refuse(path, "a header with both value and value_file, or with neither", "one of them, not empty", path+".value", path+".value_file")
	}
}

// exec checks one program. Arguments and values are never quoted.
func (r *report) exec(path string, e Exec) {
	if len(e.Argv) == 0 || e.Argv[0] == "" {
		r.refuse(path+".argv", "no program", "a list: the program, then its arguments")
	}
	for i, arg := range e.Argv {
		if strings.ContainsRune(arg, 0) {
			r.refuse(fmt.Sprintf("%s.argv[%d]", path, i), "an argument with a NUL", "text without one")
		}
	}
	if e.User != "" || r.said(path+".user") {
		r.name(path+".user", e.User)
	}
	for i, v := range e.Env {
		at := fmt.Sprintf("%s.env[%d]", path, i)
		r.variable(at, v)
		if !strings.Contains(v.Name, "=") && slices.ContainsFunc(e.Env[:i], func(o EnvVar) bool { return o.Name == v.Name }) {
			r.refuse(at, quote(v.Name)+" a second time", "each variable once")
		}
	}
}

func (r *report) variable(path string, v EnvVar) {
	switch {
	case v.Name == "":
		r.refuse(path, "a variable without a name", "its name", path+".name")
	case strings.ContainsAny(v.Name, "=\x00"):
		r.refuse(path, "a name with = or NUL in it", "the bare name, or {name, value}")
	case IsReservedVariable(v.Name):
		r.refuse(path, quote(v.Name)+", which is set for each call or belongs to the daemon alone", "another variable")
	}
	if strings.ContainsRune(v.Value, 0) {
		r.refuse(path+".value", "a value with a NUL", "text without one")
	}
	if v.Value == "" && r.said(path+".value") {
		r.refuse(path+".value", "an empty value", "text; left out, the daemon's own value is passed through")
	}
}

// exitCodes refuses a code that would mean two things.
func (r *report) exitCodes(path string, e *Exec) {
	if e == nil {
		return
	}
	for i, code := range e.Rejected {
		if slices.Contains(e.TryAgain, code) {
			r.refuse(fmt.Sprintf("%s.rejected[%d]", path, i), fmt.Sprintf("%d, which try_again has too", code),
				"each exit code in one list; try_again is [75] unless said", path+".rejected", path+".try_again")
		}
	}
}
