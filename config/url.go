package config

import (
	"net"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
)

var placeholder = regexp.MustCompile(`\{(key|ref)\}`)

// urlFault says what is wrong with a URL, without quoting any of it, and "" if
// nothing is. Only a query's may hold placeholders, and needs one.
func urlFault(raw string, query bool, schemes ...string) string {
	if raw == "" {
		return "nothing"
	}
	holders := placeholder.FindAllStringIndex(raw, -1)
	plain := placeholder.ReplaceAllString(raw, "x")
	u, err := url.Parse(plain)
	switch {
	case err != nil:
		return "a malformed URL"
	case !hasScheme(u.Scheme, schemes):
		return "a URL that does not begin with " + either(begin(schemes))
	case u.Hostname() == "" || u.Opaque != "":
		return "a URL without a host"
	case !validPort(u.Port()):
		return "a URL with a port that is none"
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return "a URL with a fragment, which is never sent"
	case strings.ContainsAny(plain, "{}"):
		return "a URL with a brace that is not {key} or {ref}"
	case !query && len(holders) > 0:
		return "a URL with {key} or {ref}, which only a query's has"
	case query && len(holders) == 0:
		return "a URL with neither {key} nor {ref}"
	case query && holders[0][0] < authorityEnd(raw):
		return "a URL with {key} or {ref} before its path"
	}
	return ""
}

func hasScheme(scheme string, schemes []string) bool {
	for _, s := range schemes {
		if s == scheme {
			return true
		}
	}
	return false
}

func begin(schemes []string) []string {
	starts := make([]string, len(schemes))
	for i, s := range schemes {
		starts[i] = s + "://"
	}
	return starts
}

func validPort(port string) bool {
	n, err := strconv.Atoi(port)
	return port == "" || err == nil && n > 0 && n <= 65535
}

// authorityEnd is where the path or the query begins.
func authorityEnd(raw string) int {
	start := strings.Index(raw, "://") + len("://")
	if i := strings.IndexAny(raw[start:], "/?"); i >= 0 {
		return start + i
	}
	return len(raw)
}

// endpoint is what two tools may share: scheme, host, port and path of the URL,
// or the program with its arguments; "" for a handler in Go.
func endpoint(t Tool) string {
	if t.Exec != nil {
		return "exec:" + strings.Join(t.Exec.Argv, "\x00")
	}
	if t.HTTP == nil {
		return ""
	}
	u, err := url.Parse(t.HTTP.URL)
	if err != nil || u.Host == "" {
		return ""
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	return u.Scheme + "://" + net.JoinHostPort(host, Port(u)) + path.Clean("/"+u.Path)
}
