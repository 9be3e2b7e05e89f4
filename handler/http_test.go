package handler_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/handler"
)

func serve(t *testing.T, f http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s
}

func TestRequestIsWhatTheInterfaceSays(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte("Bearer s3cr3t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got http.Header
	var body []byte
	var method string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got, method = r.Header, r.Method
		body = []byte(swallow(r.Body))
		say(w, ` {"b": 1, "a": [2]} `)
	})
	tool := post(s.URL)
	tool.HTTP.Method = "PUT"
	tool.HTTP.Headers = []config.Header{{Name: "Authorization", ValueFile: secret}, {Name: "X-Shop", Value: "7"}}
	c := call()
	c.WireKey = `a"b\c`
	out := build(t, tool).Handler.Execute(within(t, time.Minute), c)

	want := http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"37"}, "User-Agent": {"outboxd"},
		"Idempotency-Key": {`"a\"b\\c"`}, "Outbox-Operation": {c.StatusRef}, "Outbox-Attempt": {"3"},
		"Outbox-Fencing-Token": {"1234567890123456"}, "Traceparent": {c.Traceparent},
		"Authorization": {"Bearer s3cr3t"}, "X-Shop": {"7"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if method != "PUT" || !bytes.Equal(body, c.Arguments) {
		t.Errorf("got %s with body %q, want PUT with %q", method, body, c.Arguments)
	}
	if out.Observed != handler.Succeeded || string(out.Result) != `{"a":[2],"b":1}` || out.Excerpt != "" || !out.Answered {
		t.Errorf("outcome %+v, want succeeded with the canonical body", out)
	}
}

func TestStatusTable(t *testing.T) {
	const retry, date = "Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT"
	tests := []struct {
		status   int
		wait     string
		want     handler.Observed
		answered bool
	}{
		{200, "", handler.Succeeded, true}, {201, "", handler.Succeeded, true}, {202, "", handler.Succeeded, true},
		{204, "", handler.Succeeded, true}, {299, "", handler.Succeeded, true},
		{300, "", handler.MayHaveHappened, true}, {301, "", handler.Rejected, true}, {302, "", handler.MayHaveHappened, true},
		{303, "", handler.MayHaveHappened, true}, {304, "", handler.MayHaveHappened, true},
		{307, "", handler.Rejected, true}, {308, "", handler.Rejected, true},
		{400, "", handler.Rejected, true}, {401, "", handler.Rejected, true}, {403, "", handler.Rejected, true},
		{404, "", handler.Rejected, true}, {408, "", handler.TryAgain, true}, {409, "", handler.InProgress, true},
		{410, "", handler.Rejected, true}, {413, "", handler.Rejected, true}, {422, "", handler.Rejected, true},
		{425, "", handler.TryAgain, true}, {429, "", handler.TryAgain, true}, {429, "7", handler.TryAgain, true},
		{500, "", handler.MayHaveHappened, true}, {501, "", handler.MayHaveHappened, true},
		{502, "", handler.MayHaveHappened, false}, {503, "", handler.MayHaveHappened, true},
		{503, "120", handler.TryAgain, true}, {503, date, handler.TryAgain, true}, {503, "soon", handler.MayHaveHappened, true},
		{504, "", handler.MayHaveHappened, false}, {599, "", handler.MayHaveHappened, true}, {700, "", handler.MayHaveHappened, true},
	}
	i, requests := 0, 0
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		w.Header().Set("Location", "/elsewhere")
		if tests[i].wait != "" {
			w.Header().Set(retry, tests[i].wait)
		}
		w.WriteHeader(tests[i].status)
	})
	pair := build(t, post(s.URL))
	for i = range tests {
		tt := tests[i]
		out := pair.Handler.Execute(within(t, time.Minute), call())
		if out.Observed != tt.want || out.Answered != tt.answered || out.Code != fmt.Sprintf("http_%d", tt.status) {
			t.Errorf("status %d, Retry-After %q: got %+v, want %s, answered %t", tt.status, tt.wait, out, tt.want, tt.answered)
		}
		if tt.wait == "120" && (!out.HasRetryAfter || out.RetryAfter != 2*time.Minute) {
			t.Errorf("Retry-After %q: got %v, %t", tt.wait, out.RetryAfter, out.HasRetryAfter)
		}
		if tt.status == 307 && out.Excerpt != "redirect to another path" {
			t.Errorf("excerpt %q of a redirect", out.Excerpt)
		}
	}
	if requests != len(tests) {
		t.Errorf("%d requests for %d calls", requests, len(tests))
	}
}

func TestBodyThatIsNoStrictJSONIsEvidence(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	say(z, `{"a":1}`)
	z.Close()
	tests := map[string]struct{ body, coding, result, excerpt string }{
		"text":      {body: "ok\x1b[31m\n", excerpt: `ok\x1b[31m`},
		"twice":     {body: `{"a":1,"a":2}`, excerpt: `{"a":1,"a":2}`},
		"nothing":   {},
		"array":     {body: `[1, 2]`, result: `[1,2]`},
		"bad utf-8": {body: "caf\xe9", excerpt: `caf\xe9`},
		"bidi":      {body: "a\u202eb", excerpt: `a\u202eb`},
		"gzip":      {body: zipped.String(), coding: "gzip", excerpt: fmt.Sprintf("a body of %d bytes in a content coding that was not asked for", zipped.Len())},
	}
	for name, tt := range tests {
		var asked string
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			asked = r.Header.Get("Accept-Encoding")
			w.Header().Set("Content-Type", "application/json")
			if tt.coding != "" {
				w.Header().Set("Content-Encoding", tt.coding)
			}
			say(w, tt.body)
		})
		out := build(t, post(s.URL)).Handler.Execute(within(t, time.Minute), call())
		if out.Observed != handler.Succeeded || string(out.Result) != tt.result || out.Excerpt != tt.excerpt || asked != "" {
			t.Errorf("%s: got %+v, asked for coding %q; want result %q, excerpt %q", name, out, asked, tt.result, tt.excerpt)
		}
	}
}

func TestHugeAnswerIsReadToTheLimitOnly(t *testing.T) {
	for _, status := range []int{200, 500} {
		written := make(chan int, 1)
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			n := 0
			for chunk := bytes.Repeat([]byte("ä"), 16<<10); n < 2<<30; {
				m, err := w.Write(chunk)
				if n += m; err != nil {
					break
				}
			}
			written <- n
		})
		out := build(t, post(s.URL)).Handler.Execute(within(t, time.Minute), call())
		if n := <-written; n > 64<<20 {
			t.Errorf("status %d: the server got rid of %d bytes", status, n)
		}
		if (out.Observed == handler.Succeeded) != (status == 200) || out.Result != nil || out.Answered {
			t.Errorf("status %d: got %+v", status, out)
		}
		if len(out.Excerpt) > handler.MaxExcerpt || !strings.HasSuffix(out.Excerpt, "ä…") {
			t.Errorf("excerpt of %d bytes ends %q", len(out.Excerpt), out.Excerpt[len(out.Excerpt)-8:])
		}
	}
}

func TestRedirectIsNotFollowedAndItsTargetIsShownWithoutSecrets(t *testing.T) {
	requests := 0
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		http.Redirect(w, r, "https://u:pw-7@other.example/new?sig=zz9#f", http.StatusFound)
	})
	out := build(t, post(s.URL+"/old")).Handler.Execute(within(t, time.Minute), call())
	if requests != 1 || out.Observed != handler.MayHaveHappened || out.Excerpt != "redirect to https://other.example" {
		t.Errorf("%d requests, outcome %+v", requests, out)
	}
}

func TestExcerptHoldsNothingOfOurs(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body := swallow(r.Body)
		user, password, _ := r.BasicAuth()
		w.WriteHeader(http.StatusInternalServerError)
		say(w, fmt.Sprintf("Cannot POST %s (%s, %s) for %s:%s %s key %s: %s", r.URL.Path, r.URL, r.FormValue("sig"),
			user, password, r.Header.Get("Authorization"), r.Header.Get("X-Key"), body))
	})
	tool := post(strings.Replace(s.URL, "http://", "http://u:pw-7@", 1) + "/hook/tok-55?sig=zz9")
	tool.HTTP.Headers = []config.Header{{Name: "X-Key", Value: "Token k3y-of-ours"}}
	pair := build(t, tool)
	out := pair.Handler.Execute(within(t, time.Minute), call())
	if !strings.HasPrefix(out.Excerpt, "Cannot POST [redacted]") {
		t.Errorf("excerpt %q", out.Excerpt)
	}
	nowhere := tool
	nowhere.HTTP = &config.HTTP{URL: "http://u:pw-7@h.invalid/hook/tok-55?sig=zz9", Method: "POST"}
	for _, out := range []handler.Outcome{out, build(t, nowhere).Handler.Execute(within(t, time.Minute), call())} {
		for _, secret := range []string{"pw-7", "tok-55", "zz9", "k3y-of-ours", "dTpwdy03", "12.50", "order-17"} {
			if text := fmt.Sprintf("%+v", out); strings.Contains(text, secret) {
				t.Errorf("%q in %s", secret, text)
			}
		}
	}
	bad := config.Tool{Name: "bad", HTTP: &config.HTTP{URL: "http://u:pw-7@h.invalid:x/tok-55?sig=zz9\x7f"}}
	if _, err := handler.Build(bad); err == nil || strings.Contains(err.Error(), "pw-7") || strings.Contains(err.Error(), "tok-55") {
		t.Errorf("Build with a malformed URL = %v", err)
	}
}

func TestKeyThatCannotBeAHeaderIsRefusedHere(t *testing.T) {
	requests := 0
	s := serve(t, func(http.ResponseWriter, *http.Request) { requests++ })
	pair := build(t, post(s.URL))
	for _, key := range []string{"a\nb", "a\tb", "a\x7f", "schlüssel", "🙂"} {
		c := call()
		c.WireKey = key
		out := pair.Handler.Execute(within(t, time.Minute), c)
		if out.Observed != handler.Rejected || out.Code != "key_not_printable" || requests != 0 {
			t.Errorf("key %q: %d requests, outcome %+v", key, requests, out)
		}
	}
}

func TestQuestionTable(t *testing.T) {
	tests := []struct {
		status int
		body   string
		want   handler.Found
		result string
	}{
		{200, `{"id": 7}`, handler.Applied, `{"id":7}`}, {200, "done", handler.Applied, ""},
		{404, "none", handler.NotApplied, ""}, {202, "", handler.InProgress, ""}, {409, "", handler.InProgress, ""},
		{201, "{}", handler.NoAnswer, ""}, {204, "", handler.NoAnswer, ""}, {302, "", handler.NoAnswer, ""},
		{401, "", handler.NoAnswer, ""}, {410, "", handler.NoAnswer, ""}, {500, "", handler.NoAnswer, ""}, {503, "", handler.NoAnswer, ""},
	}
	i := 0
	var method, uri, auth string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		method, uri, auth = r.Method, r.RequestURI, r.Header.Get("Authorization")
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(tests[i].status)
		say(w, tests[i].body)
	})
	tool := post(s.URL)
	tool.Query = &config.Query{HTTP: &config.HTTP{
		URL: s.URL + "/of/{key}?ref={ref}&k={key}", Method: "GET", Headers: []config.Header{{Name: "Authorization", Value: "Bearer b"}},
	}}
	pair := build(t, tool)
	c := call()
	c.WireKey = "a/../b?c&d e"
	for i = range tests {
		tt := tests[i]
		a := pair.Asker.Ask(within(t, time.Minute), c)
		if a.Found != tt.want || string(a.Result) != tt.result || a.RetryAfter != 5*time.Second || a.Code != fmt.Sprintf("http_%d", tt.status) {
			t.Errorf("status %d, body %q: got %+v, want %s", tt.status, tt.body, a, tt.want)
		}
	}
	if want := "/of/a%2F..%2Fb%3Fc&d%20e?ref=" + c.StatusRef + "&k=a%2F..%2Fb%3Fc%26d+e"; method != "GET" || uri != want || auth != "Bearer b" {
		t.Errorf("asked %s %s with %q, want GET %s", method, uri, auth, want)
	}
	uri = ""
	c.WireKey = ".."
	if a := pair.Asker.Ask(within(t, time.Minute), c); a.Found != handler.NoAnswer || uri != "" {
		t.Errorf("key ..: got %+v after asking %q", a, uri)
	}
}

func TestBuildRefusesWhatCannotBeRight(t *testing.T) {
	const url = "http://127.0.0.1:1/"
	header := func(h config.Header) config.HTTP { return config.HTTP{URL: url, Headers: []config.Header{h}} }
	for name, h := range map[string]config.HTTP{
		"no host":       {URL: "http:///x"},
		"other scheme":  {URL: "ftp://h/x"},
		"our header":    header(config.Header{Name: "idempotency-key", Value: "x"}),
		"bad name":      header(config.Header{Name: "a b", Value: "x"}),
		"bad value":     header(config.Header{Name: "A", Value: "x\ny"}),
		"missing file":  header(config.Header{Name: "A", ValueFile: "/nonexistent/x"}),
		"missing ca":    {URL: url, CAFile: "/nonexistent/x"},
		"missing key":   {URL: url, CertFile: "/nonexistent/x", KeyFile: "/nonexistent/y"},
		"strange proxy": {URL: url, Proxy: "gopher://h"},
	} {
		if _, err := handler.Build(config.Tool{Name: "t", HTTP: &h}); err == nil {
			t.Errorf("%s: built", name)
		}
	}
	if _, err := handler.Build(config.Tool{Name: "t"}); err == nil {
		t.Error("a tool without http and exec: built")
	}
}

func TestContextThatEndedBeforeSendsNothing(t *testing.T) {
	requests := 0
	s := serve(t, func(http.ResponseWriter, *http.Request) { requests++ })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	script := shell("exit 0")
	for _, tool := range []config.Tool{post(s.URL), script} {
		out := build(t, tool).Handler.Execute(ctx, call())
		if out.Observed != handler.NotSent || out.Code != "cancelled" || !out.Answered || requests != 0 {
			t.Errorf("%s: %d requests, outcome %+v", tool.Name, requests, out)
		}
	}
}
