package handler_test

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/handler"
)

// The frames of RFC 9113 that the server below speaks.
const (
	frameData     = 0
	frameHeaders  = 1
	frameReset    = 3
	frameSettings = 4
	frameGoAway   = 7

	endStream, endHeaders = 1, 4

	refusedStream = 7
)

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	head := make([]byte, 9, 9+len(payload))
	binary.BigEndian.PutUint32(head, uint32(len(payload))<<8)
	head[3], head[4] = kind, flags
	binary.BigEndian.PutUint32(head[5:], stream)
	return append(head, payload...)
}

func numbers(n ...uint32) (b []byte) {
	for _, v := range n {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

// fine2 is status 200 with the body {}.
func fine2(stream uint32) []byte {
	return append(frame(frameHeaders, endHeaders, stream, []byte{0x88}), frame(frameData, endStream, stream, []byte("{}"))...)
}

// server2 speaks HTTP/2 frame by frame: it reads each request to its end, counts
// it, and says what reply returns; nil hangs up.
func server2(t *testing.T, reply func(n int64, stream uint32) []byte) (config.Tool, *atomic.Int64) {
	t.Helper()
	requests := new(atomic.Int64)
	pattern, ca := secure(t, "localhost", time.Now().Add(time.Hour))
	cfg := pattern.TLS.Clone()
	cfg.NextProtos = []string{"h2"}
	s := listen(t, func(conn net.Conn, _ func() bool) {
		sealed := tls.Server(conn, cfg)
		defer sealed.Close()
		if _, err := io.ReadFull(sealed, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
			return
		}
		say(sealed, string(frame(frameSettings, 0, 0, nil)))
		for {
			head := make([]byte, 9)
			if _, err := io.ReadFull(sealed, head); err != nil {
				return
			}
			length := int64(binary.BigEndian.Uint32(head) >> 8)
			if _, err := io.CopyN(io.Discard, sealed, length); err != nil {
				return
			}
			if kind := head[3]; kind > frameHeaders || head[4]&endStream == 0 {
				continue
			}
			answer := reply(requests.Add(1), binary.BigEndian.Uint32(head[5:]))
			if answer == nil {
				return
			}
			say(sealed, string(answer))
		}
	})
	tool := post("https://" + s.Addr().String() + "/x")
	tool.HTTP.CAFile = ca
	return tool, requests
}

func TestHTTP2RequestIsNotSentAgainWhateverTheServerDoesAfterReadingIt(t *testing.T) {
	for name, reply := range map[string]func(int64, uint32) []byte{
		"hang up":               func(int64, uint32) []byte { return nil },
		"refused stream":        func(_ int64, s uint32) []byte { return frame(frameReset, 0, s, numbers(refusedStream)) },
		"cancelled stream":      func(_ int64, s uint32) []byte { return frame(frameReset, 0, s, numbers(8)) },
		"protocol error":        func(_ int64, s uint32) []byte { return frame(frameReset, 0, s, numbers(1)) },
		"goaway, stream unseen": func(int64, uint32) []byte { return frame(frameGoAway, 0, 0, numbers(0, 0)) },
		"goaway, in shutdown":   func(_ int64, s uint32) []byte { return frame(frameGoAway, 0, 0, numbers(s, 0)) },
		"goaway for calming": func(int64, uint32) []byte {
			return frame(frameGoAway, 0, 0, numbers(0, 11))
		},
		"garbage": func(int64, uint32) []byte { return []byte("HTTP/1.1 200 OK\r\n\r\n") },
	} {
		for _, used := range []bool{false, true} {
			tool, requests := server2(t, func(n int64, s uint32) []byte {
				if used && n == 1 {
					return fine2(s)
				}
				return reply(n, s)
			})
			pair := build(t, tool)
			want := int64(1)
			if used {
				want = 2
				if out := pair.Handler.Execute(within(t, time.Minute), call()); out.Observed != handler.Succeeded || string(out.Result) != "{}" {
					t.Fatalf("%s: first call %+v", name, out)
				}
			}
			out := pair.Handler.Execute(within(t, 2*time.Second), call())
			if out.Observed != handler.MayHaveHappened || out.Answered {
				t.Errorf("%s, connection used before %t: got %+v", name, used, out)
			}
			if n := requests.Load(); n != want {
				t.Errorf("%s, connection used before %t: %d requests on the wire, want %d", name, used, n, want)
			}
		}
	}
}

// A client that picks connections by itself does send again, so the server above
// can tell.
func TestHTTP2ServerOfTheTestSeesAResend(t *testing.T) {
	tool, requests := server2(t, func(n int64, s uint32) []byte {
		if n == 1 {
			return frame(frameReset, 0, s, numbers(refusedStream))
		}
		return fine2(s)
	})
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the test's own server
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Get(tool.HTTP.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	swallow(res.Body)
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests, want the first and its repetition", n)
	}
}

func TestHTTP2IsSpokenWhereTheServerChoosesItAndConnectionsAreReused(t *testing.T) {
	pattern, ca := secure(t, "localhost", time.Now().Add(time.Hour))
	var version, body string
	var opened atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version, body = r.Proto, swallow(r.Body)
		w.WriteHeader(http.StatusCreated)
		say(w, `{"a": 1}`)
	}))
	s.EnableHTTP2, s.TLS = true, pattern.TLS.Clone()
	s.TLS.NextProtos = nil
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	tool := post(s.URL)
	tool.HTTP.CAFile = ca
	pair := build(t, tool)
	c := call()
	for range 3 {
		out := pair.Handler.Execute(within(t, time.Minute), c)
		if out.Observed != handler.Succeeded || string(out.Result) != `{"a":1}` || version != "HTTP/2.0" || body != string(c.Arguments) {
			t.Errorf("over %s with body %q: %+v", version, body, out)
		}
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d connections for 3 calls, one after the other", n)
	}
}

func TestHTTP2AnswerThatDripsEndsAtTheLimit(t *testing.T) {
	tool, requests := server2(t, func(_ int64, s uint32) []byte {
		return append(frame(frameHeaders, endHeaders, s, []byte{0x88}), frame(frameData, 0, s, []byte("{"))...)
	})
	out := build(t, tool).Handler.Execute(within(t, 300*time.Millisecond), call())
	if out.Observed != handler.MayHaveHappened || out.Code != "timeout" || requests.Load() != 1 {
		t.Errorf("%d requests, outcome %+v", requests.Load(), out)
	}
}
