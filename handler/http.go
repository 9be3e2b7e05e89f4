package handler

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// endpoint is a configured HTTP target, for effects or for questions.
type endpoint struct {
	url     string // as configured; a question's has {key} or {ref} in it
	method  string
	header  http.Header
	host    string   // the Host header, empty = the URL's
	secrets []string // header values
	proxied bool
	sign    *signer // nil: not signed
	wire    *wire
}

// Execute sends one request and reads one answer (docs/downstream.md:
// HTTP).
func (e *endpoint) Execute(ctx context.Context, c Call) Outcome {
	target, err := url.Parse(e.url)
	if err != nil {
		return Outcome{Observed: NotSent, Code: "url", Answered: true}
	}
	key, ok := structuredString(c.WireKey)
	if !ok {
		// No later attempt can send it either.
		return Outcome{Observed: Rejected, Code: "key_not_printable", Answered: true}
	}
	req, err := e.request(e.method, target, c, c.Arguments)
	if err != nil {
		return Outcome{Observed: NotSent, Code: "sign", Answered: true}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header["Idempotency-Key"] = []string{key}
	// GetBody stays nil: with it the transport resends on a reused connection.
	req.Body = io.NopCloser(bytes.NewReader(c.Arguments))
	req.ContentLength = int64(len(c.Arguments))

	hide := e.redactor(target)
	rep, miss := e.wire.exchange(ctx, req)
	if miss != nil {
		return miss.outcome(hide, c.Arguments)
	}
	return e.outcome(rep, hide, c.Arguments)
}

// request has everything that effects and questions send alike.
func (e *endpoint) request(method string, target *url.URL, c Call, body []byte) (*http.Request, error) {
	req := &http.Request{
		Method: method, URL: target, Host: e.host, Header: e.header.Clone(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if u := target.User; u != nil && req.Header.Get("Authorization") == "" {
		password, _ := u.Password()
		req.SetBasicAuth(u.Username(), password)
	}
	req.Header.Set("Outbox-Operation", c.StatusRef)
	req.Header.Set("Outbox-Attempt", strconv.Itoa(c.Attempt))
	req.Header.Set("Outbox-Fencing-Token", strconv.FormatInt(c.Token, 10))
	if _, ok := structuredString(c.Traceparent); ok && c.Traceparent != "" {
		req.Header.Set("Traceparent", c.Traceparent)
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "outboxd")
	}
	if e.sign != nil {
		return req, e.sign.sign(req.Header, c.StatusRef, body, time.Now())
	}
	return req, nil
}

func (e *endpoint) redactor(target *url.URL) redactor {
	return newRedactor(append(secretsOf(target), e.secrets...))
}

func (e *endpoint) outcome(rep *reply, hide redactor, body []byte) Outcome {
	out := Outcome{
		Observed: rep.observed(),
		Code:     rep.code(),
		Answered: rep.answered(),
		Excerpt:  rep.excerpt(hide, body),
	}
	out.RetryAfter, out.HasRetryAfter = rep.retryAfter()
	switch {
	case e.proxied && rep.status == http.StatusProxyAuthRequired:
		out.Observed, out.Code = NotSent, "proxy_407" // it never got past the proxy
	case out.Observed == Succeeded:
		if out.Result = rep.result(); out.Result != nil {
			out.Excerpt = ""
		}
	}
	return out
}

// question is an endpoint that is asked by GET.
type question struct{ *endpoint }

// Ask sends one status query. Only 200 is proof of the effect, only 404 says
// that there is none (docs/downstream.md: HTTP).
func (q question) Ask(ctx context.Context, c Call) Answer {
	target, ok := q.address(c)
	if !ok {
		return Answer{Found: NoAnswer, Code: "key_not_addressable"}
	}
	req, err := q.request(http.MethodGet, target, c, nil)
	if err != nil {
		return Answer{Found: NoAnswer, Code: "sign"}
	}
	hide := q.redactor(target)
	rep, miss := q.wire.exchange(ctx, req)
	if miss != nil {
		return Answer{Found: NoAnswer, Code: miss.code, Excerpt: hide.head([]byte(miss.note), nil)}
	}
	a := Answer{Found: rep.found(), Code: rep.code(), Excerpt: rep.excerpt(hide, c.Arguments)}
	a.RetryAfter, a.HasRetryAfter = rep.retryAfter()
	if a.Found == Applied {
		if a.Result = rep.result(); a.Result != nil {
			a.Excerpt = ""
		}
	}
	return a
}

// address puts the wire key and the status_ref into the URL. A key of dots is
// refused: on its way it may be taken for a directory, and the answer about a
// directory for an answer about the key.
func (q question) address(c Call) (*url.URL, bool) {
	if c.WireKey == "" || strings.Trim(c.WireKey, ".") == "" {
		return nil, false
	}
	path, query, asked := strings.Cut(q.url, "?")
	fill := func(text string, escape func(string) string) string {
		return strings.NewReplacer("{key}", escape(c.WireKey), "{ref}", escape(c.StatusRef)).Replace(text)
	}
	full := fill(path, url.PathEscape)
	if asked {
		full += "?" + fill(query, url.QueryEscape)
	}
	target, err := url.Parse(full)
	return target, err == nil
}

// structuredString writes a key as a string of RFC 9651 section 3.3.3, which
// has printable ASCII only.
func structuredString(key string) (string, bool) {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(key) {
		switch c := key[i]; {
		case c < 0x20 || c > 0x7e:
			return "", false
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String(), true
}
