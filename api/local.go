package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

// ErrUnanswered says that the call was cut off. Whether it took place is not known.
var ErrUnanswered = errors.New("no answer: whether the call took place is not known")

// Local is a transport that calls the handler in this process, as the given uid
// with the groups of this process.
func Local(h http.Handler, uid int) http.RoundTripper {
	gids, err := os.Getgroups()
	if err != nil {
		gids = nil // no groups grant nothing
	}
	return &local{h, peer{UID: uid, GIDs: append(gids, os.Getgid())}}
}

type local struct {
	h    http.Handler
	peer peer
}

// RoundTrip implements http.RoundTripper.
func (l *local) RoundTrip(r *http.Request) (res *http.Response, err error) {
	in := r.Clone(withPeer(r.Context(), l.peer))
	in.RequestURI = r.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer in.Body.Close()
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if cut, _ := p.(error); !errors.Is(cut, http.ErrAbortHandler) {
			panic(p)
		}
		res, err = nil, errors.Join(ErrUnanswered, r.Context().Err())
	}()
	w := &memory{header: http.Header{}}
	l.h.ServeHTTP(w, in)
	return w.response(r), nil
}

// memory keeps an answer.
type memory struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (m *memory) Header() http.Header { return m.header }

func (m *memory) WriteHeader(status int) {
	if m.status == 0 {
		m.status = status
	}
}

func (m *memory) Write(b []byte) (int, error) {
	m.WriteHeader(http.StatusOK)
	return m.body.Write(b)
}

func (m *memory) response(r *http.Request) *http.Response {
	m.WriteHeader(http.StatusOK)
	return &http.Response{
		Status: fmt.Sprintf("%d %s", m.status, http.StatusText(m.status)), StatusCode: m.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: m.header,
		Body: io.NopCloser(&m.body), ContentLength: int64(m.body.Len()), Request: r,
	}
}

// Socket is a transport to the daemon that listens at path. It resends nothing.
func Socket(path string) *http.Transport {
	var d net.Dialer
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		},
		MaxIdleConnsPerHost: 64,
		DisableCompression:  true,
	}
}
