package handler

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/outboxd/outboxd/backoff"
	"github.com/outboxd/outboxd/contract"
)

// MaxResult bounds a result, in bytes, as received and in canonical form.
const MaxResult = 64 << 10

// reply is one answer, read as far as we care.
type reply struct {
	status int
	header http.Header
	body   []byte // at most MaxResult bytes
	whole  bool   // the body ended, and properly
	cut    bool   // there was more than MaxResult
}

// exchange makes one request on the wire. The context bounds all of it, the
// last byte of the body included.
func (w *wire) exchange(ctx context.Context, req *http.Request) (*reply, *miss) {
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &attempt{ctx: limited}
	l, err := w.take(a)
	if err != nil {
		return nil, a.explain(ctx, err)
	}
	// A connection and not a Client: it follows no redirect and its errors hold
	// no URL.
	res, err := a.send(l, req)
	if err != nil {
		return nil, a.explain(ctx, err)
	}
	rep := &reply{status: res.StatusCode, header: res.Header}
	if res.StatusCode != http.StatusSwitchingProtocols {
		rep.read(res.Body)
	}
	if !rep.whole {
		_ = l.Close() // with what is left unread
	}
	_ = res.Body.Close()
	w.give(l)
	if !rep.whole && !rep.cut {
		return nil, a.unfinished(ctx, rep)
	}
	return rep, nil
}

func (r *reply) read(body io.Reader) {
	got, err := io.ReadAll(io.LimitReader(body, MaxResult+1))
	r.cut = len(got) > MaxResult
	r.whole = err == nil && !r.cut
	r.body = got[:min(len(got), MaxResult)]
}

func (r *reply) code() string { return "http_" + strconv.Itoa(r.status) }

// answered: a gateway's 502 and 504 say nothing about the server behind it.
func (r *reply) answered() bool {
	return r.whole && r.status != http.StatusBadGateway && r.status != http.StatusGatewayTimeout
}

// observed is the status table. Everything it does not name may have happened.
func (r *reply) observed() Observed {
	switch r.status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return TryAgain
	case http.StatusServiceUnavailable:
		if _, ok := r.retryAfter(); ok {
			return TryAgain
		}
		return MayHaveHappened
	case http.StatusConflict:
		return InProgress
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return Rejected
	}
	switch r.status / 100 {
	case 2:
		return Succeeded
	case 4:
		return Rejected
	}
	return MayHaveHappened
}

// found is the table of the status query.
func (r *reply) found() Found {
	switch r.status {
	case http.StatusOK:
		return Applied
	case http.StatusNotFound:
		return NotApplied
	case http.StatusAccepted, http.StatusConflict:
		return InProgress
	}
	return NoAnswer
}

func (r *reply) retryAfter() (time.Duration, bool) {
	value := r.header.Get("Retry-After")
	if value == "" {
		return 0, false
	}
	return backoff.RetryAfter(value, time.Now())
}

// encoded reports a content coding. We ask for none, and unpacking one could
// make gigabytes of little: such a body is evidence only.
func (r *reply) encoded() bool {
	coding := r.header.Get("Content-Encoding")
	return coding != "" && coding != "identity"
}

// result is the body as canonical JSON, or nil if it is none.
func (r *reply) result() []byte {
	if !r.whole || r.encoded() {
		return nil
	}
	return canonical(r.body)
}

func (r *reply) excerpt(hide redactor, ours []byte) string {
	if to := r.header.Get("Location"); r.status/100 == 3 && to != "" {
		return hide.head([]byte("redirect to "+address(to)), ours)
	}
	if r.encoded() {
		return "a body of " + strconv.Itoa(len(r.body)) + " bytes in a content coding that was not asked for"
	}
	body := r.body
	if r.cut {
		body = append(bytes.Clone(body), cutMark...)
	}
	return hide.head(body, ours)
}

// address is where a redirect leads, without what may carry secrets: a path may
// hold a token as well as a query.
func address(location string) string {
	u, err := url.Parse(location)
	switch {
	case err != nil:
		return "an address that cannot be read"
	case u.Host == "":
		return "another path"
	case u.Scheme == "":
		return u.Host
	}
	return u.Scheme + "://" + u.Host
}

// canonical is a result in canonical form, or nil: what is no strict JSON
// within MaxResult is no result.
func canonical(raw []byte) []byte {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	canon, err := contract.CanonicalLimit(raw, MaxResult)
	if err != nil {
		return nil
	}
	return canon
}

// unfinished is an answer that broke off: its status line came, but an answer
// counts only as a whole.
func (a *attempt) unfinished(ctx context.Context, r *reply) *miss {
	m := &miss{observed: MayHaveHappened, code: "broken_off", note: "unfinished answer with status " + strconv.Itoa(r.status)}
	switch {
	case r.status == http.StatusSwitchingProtocols:
		m.code = r.code()
	case ctx.Err() != nil:
		m.code = endedBy(ctx)
	}
	return m
}

// explain tells what an error of RoundTrip means.
func (a *attempt) explain(ctx context.Context, err error) *miss {
	if !a.handedOver() {
		return &miss{observed: NotSent, code: a.unsentCode(ctx, err), note: note(err)}
	}
	m := &miss{observed: MayHaveHappened, code: "no_answer", note: note(err)}
	switch {
	case ctx.Err() != nil:
		m.code = endedBy(ctx)
	case a.phase.Load() == phaseAnswer && !errors.Is(err, io.EOF):
		m.code = "garbage"
	}
	return m
}
