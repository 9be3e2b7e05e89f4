package handler_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/handler"
)

// raw is a TCP server that counts the whole requests it has read.
type raw struct {
	net.Listener
	requests atomic.Int64
	ended    chan struct{} // one value for each connection that is over
}

// listen runs each connection through f, which gets requests by next.
func listen(t *testing.T, f func(conn net.Conn, next func() bool)) *raw {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &raw{Listener: l, ended: make(chan struct{}, 1000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(conn)
			f(conn, func() bool {
				req, err := http.ReadRequest(in)
				if err != nil {
					return false
				}
				swallow(req.Body)
				s.requests.Add(1)
				return true
			})
			conn.Close()
			s.ended <- struct{}{}
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return s
}

func (s *raw) url() string { return "http://" + s.Addr().String() + "/x" }

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

func TestKeptAliveConnectionThatClosesAfterReadingIsNotTriedAgain(t *testing.T) {
	s := listen(t, func(conn net.Conn, next func() bool) {
		if next() {
			say(conn, fine)
			next()
		}
	})
	pair := build(t, post(s.url()))
	if out := pair.Handler.Execute(within(t, time.Minute), call()); out.Observed != handler.Succeeded {
		t.Fatalf("first call: %+v", out)
	}
	out := pair.Handler.Execute(within(t, time.Minute), call())
	if out.Observed != handler.MayHaveHappened || out.Code != "no_answer" || out.Answered {
		t.Errorf("second call: %+v", out)
	}
	if n := s.requests.Load(); n != 2 {
		t.Errorf("%d requests on the wire for 2 calls", n)
	}
}

func TestIdleConnectionThatClosedIsNotTriedAgain(t *testing.T) {
	s := listen(t, func(conn net.Conn, next func() bool) {
		if next() {
			say(conn, fine)
		}
	})
	pair := build(t, post(s.url()))
	for i := range 300 {
		before := s.requests.Load()
		out := pair.Handler.Execute(within(t, time.Minute), call())
		n := s.requests.Load() - before
		if n > 1 {
			t.Fatalf("call %d: %d requests, outcome %+v", i, n, out)
		}
		switch out.Observed {
		case handler.Succeeded, handler.MayHaveHappened:
		case handler.NotSent:
			if n != 0 || out.Code != "connection_lost" {
				t.Fatalf("call %d: not sent, but %d requests arrived: %+v", i, n, out)
			}
		default:
			t.Fatalf("call %d: %+v", i, out)
		}
	}
}

func TestOpaqueToolSharesNoConnection(t *testing.T) {
	s := listen(t, func(conn net.Conn, next func() bool) {
		if next() {
			say(conn, fine)
			next()
		}
	})
	tool := post(s.url())
	tool.Effect = "opaque"
	pair := build(t, tool)
	for range 3 {
		if out := pair.Handler.Execute(within(t, time.Minute), call()); out.Observed != handler.Succeeded {
			t.Errorf("outcome %+v", out)
		}
	}
}

func TestQuestionIsNotAskedTwice(t *testing.T) {
	s := listen(t, func(conn net.Conn, next func() bool) {
		if next() {
			say(conn, fine)
			next()
		}
	})
	tool := post(s.url())
	tool.Query = &config.Query{HTTP: &config.HTTP{URL: s.url() + "/{key}", Method: "GET"}}
	pair := build(t, tool)
	for range 5 {
		if a := pair.Asker.Ask(within(t, time.Minute), call()); a.Found != handler.Applied {
			t.Errorf("answer %+v", a)
		}
	}
	if n := s.requests.Load(); n != 5 {
		t.Errorf("%d requests for 5 questions", n)
	}
}

// What happens after the request was read may have happened; nothing is sent
// again and nothing waits longer than the limit.
func TestAnswerThatDoesNotCome(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n"
	tests := map[string]struct {
		say, code string
		hang      bool
	}{
		"hang up":              {code: "no_answer"},
		"hang":                 {code: "timeout", hang: true},
		"garbage":              {say: "what?\r\n\r\n", code: "garbage"},
		"half a header":        {say: "HTTP/1.1 200 OK\r\nContent-Le", code: "garbage"},
		"endless header":       {say: "HTTP/1.1 200 OK\r\nX: " + string(make([]byte, 1<<17)), code: "garbage"},
		"half a body":          {say: head + "{", code: "broken_off"},
		"half a body and hang": {say: head + "{", code: "timeout", hang: true},
		"103 and hang up":      {say: "HTTP/1.1 103 Early Hints\r\n\r\n", code: "garbage"},
		"100 and hang":         {say: "HTTP/1.1 100 Continue\r\n\r\n", code: "timeout", hang: true},
		"101 and hang":         {say: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", code: "http_101", hang: true},
	}
	for name, tt := range tests {
		release := make(chan struct{})
		s := listen(t, func(conn net.Conn, next func() bool) {
			if next() {
				say(conn, tt.say)
				if tt.hang {
					<-release
				}
			}
		})
		out := build(t, post(s.url())).Handler.Execute(within(t, 300*time.Millisecond), call())
		close(release)
		if out.Observed != handler.MayHaveHappened || out.Code != tt.code || out.Answered {
			t.Errorf("%s: got %+v, want may_have_happened with code %s", name, out, tt.code)
		}
		if n := s.requests.Load(); n != 1 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
}

func TestInformationalAnswersAreSkipped(t *testing.T) {
	s := listen(t, func(conn net.Conn, next func() bool) {
		if next() {
			say(conn, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"+fine)
		}
	})
	out := build(t, post(s.url())).Handler.Execute(within(t, time.Minute), call())
	if out.Observed != handler.Succeeded || string(out.Result) != "{}" {
		t.Errorf("outcome %+v", out)
	}
}

func TestDrippingBodyEndsAtTheLimit(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				say(w, " ")
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	began := time.Now()
	out := build(t, post(s.URL)).Handler.Execute(within(t, 200*time.Millisecond), call())
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	if out.Observed != handler.MayHaveHappened || out.Code != "timeout" || out.Excerpt != "unfinished answer with status 200" {
		t.Errorf("outcome %+v", out)
	}
}

func TestCancelEndsARequestUnderWay(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	s := listen(t, func(conn net.Conn, next func() bool) {
		next()
		close(arrived)
		<-release
	})
	defer close(release)
	ctx, cancel := context.WithCancel(within(t, time.Minute))
	go func() { <-arrived; cancel() }()
	out := build(t, post(s.url())).Handler.Execute(ctx, call())
	if out.Observed != handler.MayHaveHappened || out.Code != "cancelled" {
		t.Errorf("outcome %+v", out)
	}
}

func TestNothingIsHandedOverWithoutAConnection(t *testing.T) {
	closed := listen(t, func(net.Conn, func() bool) {})
	closed.Close()
	release := make(chan struct{})
	silent := listen(t, func(net.Conn, func() bool) { <-release })
	t.Cleanup(func() { close(release) }) // before the listener's own cleanup
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	self := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(self.Close)
	old, oldCA := secure(t, "localhost", time.Now().Add(-time.Hour))
	other, otherCA := secure(t, "elsewhere.example", time.Now().Add(time.Hour))

	tests := map[string]struct{ url, ca, code string }{
		"no such name":     {"http://nowhere.invalid/", "", "dns"},
		"refused":          {closed.url(), "", "connect"},
		"silent TLS":       {"https://" + silent.Addr().String(), "", "tls"},
		"no TLS":           {"https://" + plain.Listener.Addr().String(), "", "tls_plain"},
		"self-signed":      {self.URL, "", "tls_untrusted"},
		"expired":          {old.URL, oldCA, "tls_expired"},
		"wrong name":       {other.URL, otherCA, "tls_wrong_name"},
		"no such resolver": {"http://a..b/", "", "dns"},
	}
	for name, tt := range tests {
		tool := post(tt.url)
		tool.HTTP.CAFile = tt.ca
		limit := time.Minute
		if name == "silent TLS" {
			limit = 200 * time.Millisecond
		}
		out := build(t, tool).Handler.Execute(within(t, limit), call())
		if out.Observed != handler.NotSent || out.Code != tt.code || !out.Answered {
			t.Errorf("%s: got %+v, want not_sent with code %s", name, out, tt.code)
		}
	}
}

// secure serves TLS for one name until a time, with a certificate that is its
// own authority.
func secure(t *testing.T, name string, until time.Time) (*httptest.Server, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: until.Add(-48 * time.Hour), NotAfter: until, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if name == "localhost" {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { say(w, "{}") }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, ca
}

func TestTrustedTLSWorksAndReusesItsConnection(t *testing.T) {
	s, ca := secure(t, "localhost", time.Now().Add(time.Hour))
	tool := post(s.URL)
	tool.HTTP.CAFile = ca
	pair := build(t, tool)
	for range 3 {
		out := pair.Handler.Execute(within(t, time.Minute), call())
		if out.Observed != handler.Succeeded || string(out.Result) != "{}" {
			t.Errorf("outcome %+v", out)
		}
	}
}

func TestProxyComesFromTheConfigOnly(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	var asked, auth string
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked, auth = r.RequestURI, r.Header.Get("Proxy-Authorization")
		if r.Method == http.MethodConnect || r.Host == "refused.invalid" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		say(w, "{}")
	})
	direct := build(t, post(serve(t, func(http.ResponseWriter, *http.Request) {}).URL))
	if out := direct.Handler.Execute(within(t, time.Minute), call()); out.Observed != handler.Succeeded || asked != "" {
		t.Errorf("without a proxy in the config: %+v, proxy asked for %q", out, asked)
	}
	far := build(t, post("http://target.invalid/x")) // the environment never means a loopback address
	if out := far.Handler.Execute(within(t, time.Minute), call()); out.Code != "dns" {
		t.Errorf("without a proxy in the config: %+v", out)
	}
	for url, want := range map[string]handler.Observed{
		"http://target.invalid/x": handler.Succeeded, "http://refused.invalid/x": handler.NotSent, "https://target.invalid/x": handler.NotSent,
	} {
		tool := post(url)
		tool.HTTP.Proxy = "http://u:pw@" + proxy.Listener.Addr().String()
		out := build(t, tool).Handler.Execute(within(t, time.Minute), call())
		if out.Observed != want || (want == handler.NotSent && out.Code != "proxy_407") || asked == "" || auth != "Basic dTpwdw==" {
			t.Errorf("%s: got %+v, proxy asked for %q with %q", url, out, asked, auth)
		}
	}
}

// A request whose first byte left is never called unsent, also when the other
// side takes no more of it.
func TestPartialWriteMayHaveHappened(t *testing.T) {
	s := listen(t, func(conn net.Conn, _ func() bool) {
		tcp := conn.(*net.TCPConn)
		_, err := tcp.Read(make([]byte, 1))
		if err := errors.Join(err, tcp.SetLinger(0)); err != nil { // reset
			t.Error(err)
		}
	})
	c := call()
	c.Arguments = append(append([]byte(`"`), make([]byte, 8<<20)...), '"')
	out := build(t, post(s.url())).Handler.Execute(within(t, time.Minute), c)
	if out.Observed != handler.MayHaveHappened {
		t.Errorf("outcome %+v", out)
	}
}

// Through a tunnel the transport shakes hands itself, over bytes of the
// proxy's and of the handshake's that are no part of the request.
func TestTunnelThroughAProxy(t *testing.T) {
	target, ca := secure(t, "localhost", time.Now().Add(time.Hour))
	proxy := listen(t, func(conn net.Conn, next func() bool) {
		if !next() {
			return
		}
		far, err := net.Dial("tcp", target.Listener.Addr().String())
		if err != nil {
			return
		}
		say(conn, "HTTP/1.1 200 OK\r\n\r\n")
		done := make(chan struct{})
		go func() { _, _ = io.Copy(far, conn); far.Close(); close(done) }()
		_, _ = io.Copy(conn, far)
		conn.Close()
		<-done
	})
	for _, tt := range []struct {
		ca, code string
		want     handler.Observed
	}{{ca, "http_200", handler.Succeeded}, {"", "tls_untrusted", handler.NotSent}} {
		tool := post(target.URL)
		tool.Effect = "opaque"
		tool.HTTP.CAFile, tool.HTTP.Proxy = tt.ca, "http://"+proxy.Addr().String()
		out := build(t, tool).Handler.Execute(within(t, time.Minute), call())
		if out.Observed != tt.want || out.Code != tt.code {
			t.Errorf("got %+v, want %s with code %s", out, tt.want, tt.code)
		}
	}
	broken := listen(t, func(conn net.Conn, next func() bool) {
		if next() {
			say(conn, "HTTP/1.1 200 OK\r\n\r\n") // and hang up in the handshake
		}
	})
	tool := post(target.URL)
	tool.HTTP.Proxy = "http://" + broken.Addr().String()
	if out := build(t, tool).Handler.Execute(within(t, time.Minute), call()); out.Observed != handler.NotSent || out.Code != "tls" {
		t.Errorf("a handshake that breaks: %+v", out)
	}
}

func TestTLSConnectionThatClosesAfterReadingMayHaveHappened(t *testing.T) {
	s, ca := secure(t, "localhost", time.Now().Add(time.Hour))
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	tool := post(s.URL)
	tool.HTTP.CAFile = ca
	out := build(t, tool).Handler.Execute(within(t, time.Minute), call())
	if out.Observed != handler.MayHaveHappened || out.Code != "no_answer" {
		t.Errorf("outcome %+v", out)
	}
}
