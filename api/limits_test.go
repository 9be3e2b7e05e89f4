package api_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/handler"
)

// partly sends the head of a submit and the beginning of its body.
func partly(t *testing.T, w *world, framing, kind string) *net.UnixConn {
	t.Helper()
	c := dial(t, w.socket).(*net.UnixConn)
	t.Cleanup(func() { c.Close() })
	_, err := fmt.Fprintf(c, "POST /v1/operations HTTP/1.1\r\nHost: outboxd\r\nContent-Type: %s\r\n%s", kind, framing)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	sized   = "Content-Length: 100\r\n\r\n{"
	chunked = "Transfer-Encoding: chunked\r\n\r\n5\r\n{"
)

// all is everything until the connection ends.
func all(t *testing.T, c net.Conn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(long)); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("after %q: %v", b, err)
	}
	return string(b)
}

func TestBodyThatDoesNotArriveIsTheCallersMatter(t *testing.T) {
	w := newWorld(t, script{})
	w.api.Hurry(long, 50*time.Millisecond)
	for _, framing := range []string{sized, chunked} {
		if text := all(t, partly(t, w, framing, "application/json")); !strings.HasPrefix(text, "HTTP/1.1 408 ") || !strings.Contains(text, "BODY_LATE") {
			t.Errorf("late: got %q, want 408 BODY_LATE", text)
		}
	}
	w.api.Hurry(long, long)
	for _, framing := range []string{sized, chunked} {
		c := partly(t, w, framing, "application/json")
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if text := all(t, c); !strings.HasPrefix(text, "HTTP/1.1 400 ") || !strings.Contains(text, "BODY_INCOMPLETE") {
			t.Errorf("broken off: got %q, want 400 BODY_INCOMPLETE", text)
		}
	}
	if entries := w.logged.All(); len(entries) != 0 {
		t.Errorf("logged as errors: %v", entries)
	}
}

func TestBodyThatNobodyReadsIsNotAwaitedForEver(t *testing.T) {
	w := newWorld(t, script{})
	w.api.Hurry(long, 50*time.Millisecond)
	if text := all(t, partly(t, w, sized, "text/plain")); !strings.HasPrefix(text, "HTTP/1.1 415 ") {
		t.Errorf("got %q, want 415", text)
	}
}

// timed is a writer that knows until when an answer may be sent.
type timed struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (w *timed) SetWriteDeadline(t time.Time) error { w.until = t; return nil }

func TestReconcileMayTakeAsLongAsItsQuestion(t *testing.T) {
	said := handler.Answer{Found: handler.NoAnswer, Code: "silent"}
	w := newWorld(t, script{ask: func(context.Context, handler.Call) handler.Answer { return said }})
	w.work.Handlers[idempotent] = w.work.Handlers[queryable] // an asker in Go: the tool has no query
	for _, tool := range []string{idempotent, queryable} {
		ref := w.place(tool, "order-1", "unknown")
		answer := &timed{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest("POST", "http://outboxd/v1/operations/"+ref+"/reconcile", nil)
		began := time.Now()
		w.api.ServeHTTP(answer, r.WithContext(api.WithPeer(r.Context(), os.Getuid())))
		known, _ := w.work.Registry.Lookup(tool)
		if answer.Code != http.StatusOK || answer.until.Before(began.Add(known.Timeout)) {
			t.Errorf("%s: got %d, limit %v, want 200 and more than %v", tool, answer.Code, answer.until.Sub(began), known.Timeout)
		}
	}
}

func TestOperatorWithoutAPrincipalIsToldWhatToGive(t *testing.T) {
	w := newWorld(t, script{})
	body := aCase(opaque, "order-1")
	body.Principal = nil
	_, err := w.client.Submit(context.Background(), body, 0)
	p := refused(t, "submit without a principal", err, 422, "INPUT_INVALID")
	for _, word := range []string{"--tenant", "--subject", "principal", "tenant_id", "subject_id"} {
		if !strings.Contains(p.Errors[0].Allowed, word) {
			t.Errorf("%q is missing in %q", word, p.Errors[0].Allowed)
		}
	}
}
