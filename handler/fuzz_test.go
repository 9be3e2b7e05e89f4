package handler_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/handler"
)

// storable fails unless an outcome may be stored and shown as it is.
func storable(t *testing.T, out handler.Outcome) {
	t.Helper()
	if len(out.Excerpt) > handler.MaxExcerpt || !utf8.ValidString(out.Excerpt) || strings.ContainsFunc(out.Excerpt, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("excerpt of %d bytes: %q", len(out.Excerpt), out.Excerpt)
	}
	if out.Result != nil && (out.Observed != handler.Succeeded || len(out.Result) > handler.MaxResult || !contract.IsCanonical(out.Result)) {
		t.Errorf("%s with result %.200q", out.Observed, out.Result)
	}
	if out.Code == "" || len(out.Code) > 64 || out.RetryAfter < 0 {
		t.Errorf("code %q, retry after %v", out.Code, out.RetryAfter)
	}
}

// FuzzOutcomeLine: whatever a program prints, it succeeded only if it ended with
// exit 0 and named no outcome, or said "applied"; nothing it prints panics or is
// stored as it is.
func FuzzOutcomeLine(f *testing.F) {
	for _, text := range []string{
		"", "\n", "7", `{"id":7}`, `{"outcome":"applied","result":{"b":1,"a":2}}`, `{"outcome":"rejected","reason":"no\u0000\ud83d"}`,
		`{"outcome":"retry","retry_after":90}`, `{"outcome":"retry","retry_after":"Wed, 21 Oct 2015 07:28:00 GMT"}`, `{"outcome":"retry","retry_after":1e400}`,
		`{"outcome":"retry","retry_after":"-5s"}`, `{"outcome":"done"}`, `{"outcome":null}`, `{"outcome":"applied","outcome":"rejected"}`, `{"Outcome":"rejected"}`,
		"talk\n{\"outcome\":\"unknown\"}\n\n", `{"outcome":"rejected","reason":"the "big" one"}`, "\xff\xfe", `{"a":` + strings.Repeat("[", 200),
		`{"outcome":"applied","result":9007199254740993}`,
	} {
		f.Add([]byte(text), byte(0))
		f.Add([]byte(text), byte(1))
	}
	f.Add([]byte("x"), byte(3))
	f.Add([]byte("x"), byte(75))
	f.Fuzz(func(t *testing.T, text []byte, exit byte) {
		out := handler.OutcomeOf(text, int(exit))
		storable(t, out)
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		last := bytes.TrimSpace(lines[len(lines)-1])
		said := bytes.HasPrefix(last, []byte("{")) && bytes.Contains(last, []byte(`"outcome"`))
		switch {
		case out.Observed == handler.Succeeded && exit != 0 && (!said || !bytes.Contains(last, []byte("applied"))):
			t.Errorf("exit %d and %q succeeded", exit, last)
		case out.Observed == handler.Rejected && exit != 3 && (!said || !bytes.Contains(last, []byte("rejected"))):
			t.Errorf("exit %d and %q was rejected", exit, last)
		case out.Observed == handler.TryAgain && exit != 75 && (!said || !bytes.Contains(last, []byte("retry"))):
			t.Errorf("exit %d and %q did nothing", exit, last)
		}
	})
}

// FuzzHTTPAnswer: whatever a server answers, the call ends, and it proves
// something only if a whole header with such a status is in it.
func FuzzHTTPAnswer(f *testing.F) {
	for _, text := range []string{
		"", fine, "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 204 x\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n" + fine, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
		"HTTP/1.1 503 x\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 429 x\r\nRetry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 301 x\r\nLocation: http://u:p@h/\x01\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", "HTTP/1.1 409 x\r\nContent-Length: 0\r\n\r\n", "ICY 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "HTTP/1.1 999 \r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	answers := make(chan []byte, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				swallow(req.Body)
				say(conn, string(<-answers))
			}
			conn.Close()
		}
	}()
	f.Cleanup(func() { l.Close(); <-done })
	tool := post("http://" + l.Addr().String() + "/x")
	tool.Effect = "opaque"
	pair, err := handler.Build(tool)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		answers <- text
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		out := pair.Handler.Execute(ctx, call())
		storable(t, out)
		if out.Observed == handler.NotSent {
			t.Fatalf("not sent, but the server read it: %+v", out)
		}
		status, whole := read(text)
		if out.Observed != handler.MayHaveHappened && status == 0 {
			t.Errorf("%s without a status", out.Observed)
		}
		if out.Observed == handler.Succeeded && status/100 != 2 || out.Observed == handler.Rejected && status/100 != 4 && status/100 != 3 {
			t.Errorf("%s by status %d", out.Observed, status)
		}
		if out.Answered && !whole {
			t.Errorf("known to be over by half an answer: %+v", out)
		}
	})
}

// read is the first final status in an answer, and whether its body is whole.
func read(text []byte) (status int, whole bool) {
	in := bufio.NewReader(bytes.NewReader(text))
	for {
		res, err := http.ReadResponse(in, &http.Request{Method: http.MethodPost})
		if err != nil {
			return 0, false
		}
		if res.StatusCode/100 == 1 && res.StatusCode != http.StatusSwitchingProtocols {
			_ = res.Body.Close()
			continue
		}
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		return res.StatusCode, err == nil
	}
}
