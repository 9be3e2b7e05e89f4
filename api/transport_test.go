package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/api"
)

func TestBrowsersAreRefusedAndNothingIsEnqueued(t *testing.T) {
	w := newWorld(t, script{})
	body := caseText(opaque, "order-1")
	for _, c := range []struct {
		name   string
		header map[string]string
		status int
		code   string
	}{
		{"plain text", map[string]string{"Content-Type": "text/plain"}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{"no type", map[string]string{}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{"form", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{"like JSON", map[string]string{"Content-Type": "application/json-seq"}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{"another charset", map[string]string{"Content-Type": "application/json; charset=latin1"}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{"encoded", map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{"origin", map[string]string{"Content-Type": "application/json", "Origin": "http://x.test"}, 403, "FOREIGN_ORIGIN"},
		{"null origin", map[string]string{"Content-Type": "application/json", "Origin": "null"}, 403, "FOREIGN_ORIGIN"},
		{"host", map[string]string{"Content-Type": "application/json", "Host": "x.test"}, 403, "FOREIGN_ORIGIN"},
		{"host with a port", map[string]string{"Content-Type": "application/json", "Host": "localhost:8080"}, 403, "FOREIGN_ORIGIN"},
		{"address", map[string]string{"Content-Type": "application/json", "Host": "127.0.0.1"}, 403, "FOREIGN_ORIGIN"},
		{"fetch", map[string]string{"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"}, 403, "FOREIGN_ORIGIN"},
	} {
		res, text := w.raw("POST", "/v1/operations", c.header, body)
		if res.status != c.status || !strings.Contains(text, `"code":"`+c.code+`"`) {
			t.Errorf("%s: got %d %s, want %d %s", c.name, res.status, text, c.status, c.code)
		}
		if kind := res.header.Get("Content-Type"); kind != "application/problem+json" {
			t.Errorf("%s: Content-Type %q", c.name, kind)
		}
	}
	for _, path := range []string{"/metrics", "/livez", "/v1/operations"} {
		if res, _ := w.raw("GET", path, map[string]string{"Host": "x.test"}, ""); res.status != 403 {
			t.Errorf("GET %s of a foreign host: %d, want 403", path, res.status)
		}
	}
	if n := w.count(); n != 0 {
		t.Errorf("%d operations were accepted", n)
	}
	for _, host := range []string{"outboxd", "localhost", "d"} {
		header := map[string]string{"Content-Type": "application/json; charset=utf-8", "Host": host}
		if res, text := w.raw("POST", "/v1/operations", header, caseText(opaque, host)); res.status != 202 {
			t.Errorf("host %s: got %d %s, want 202", host, res.status, text)
		}
	}
}

func TestWhatIsNoRouteIsAProblemToo(t *testing.T) {
	w := newWorld(t, script{})
	for _, c := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"GET", "/", 404, "NO_SUCH_ROUTE"},
		{"GET", "/v1/config", 404, "NO_SUCH_ROUTE"},
		{"POST", "/v1/reviews", 404, "NO_SUCH_ROUTE"},
		{"GET", "/v1//operations", 404, "NO_SUCH_ROUTE"},
		{"DELETE", "/v1/operations", 405, "METHOD_NOT_ALLOWED"},
		{"POST", "/livez", 405, "METHOD_NOT_ALLOWED"},
	} {
		res, text := w.raw(c.method, c.path, nil, "")
		if res.status != c.status || !strings.Contains(text, c.code) || res.header.Get("Location") != "" {
			t.Errorf("%s %s: got %d %s, want %d %s", c.method, c.path, res.status, text, c.status, c.code)
		}
	}
}

func TestHealthAndMetricsAreForEverybodyWhoConnects(t *testing.T) {
	w := newWorld(t, script{})
	for path, want := range map[string]string{"/livez": "ok\n", "/readyz": "ok\n", "/metrics": "outbox_up 1\n"} {
		if res, text := w.raw("GET", path, nil, ""); res.status != 200 || text != want {
			t.Errorf("GET %s: got %d %q, want %q", path, res.status, text, want)
		}
	}
	sick := api.New(api.Deps{
		Ledger: w.ledger, Poller: w.poller, Log: zap.NewNop(), Access: &api.Access{},
		Ready: func() error { return errors.New("disk full") },
	})
	answer := httptest.NewRecorder()
	sick.ServeHTTP(answer, httptest.NewRequest("GET", "http://outboxd/readyz", nil))
	if answer.Code != 503 || answer.Body.String() != "disk full\n" {
		t.Errorf("not ready: got %d %q, want 503 disk full", answer.Code, answer.Body)
	}
	answer = httptest.NewRecorder()
	sick.ServeHTTP(answer, httptest.NewRequest("GET", "http://outboxd/v1/operations", nil))
	if answer.Code != 403 {
		t.Errorf("a request of nobody: got %d, want 403", answer.Code)
	}
}

func TestSocketHasItsModeFromTheBeginning(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "outboxd.sock")
	for _, mode := range []fs.FileMode{0o600, 0o660, 0o666} {
		l, err := api.Listen(path, mode)
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Lstat(path)
		if err != nil || st.Mode().Perm() != mode || st.Mode().Type() != fs.ModeSocket {
			t.Errorf("mode %o: got %v, %v", mode, st.Mode(), err)
		}
		if l.Addr().String() != path {
			t.Errorf("address %s, want %s", l.Addr(), path)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

func TestSocketOfADeadProcessIsReplacedAndALiveOneIsNot(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := api.Listen(path, 0o600)
	if err != nil {
		t.Fatalf("socket of a dead process: %v", err)
	}
	if _, err := api.Listen(path, 0o600); !errors.Is(err, api.ErrSocketInUse) {
		t.Errorf("socket of a live one: got %v, want ErrSocketInUse", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Listen(path, 0o600); !errors.Is(err, api.ErrNotSocket) {
		t.Errorf("a file: got %v, want ErrNotSocket", err)
	}
	if b, err := os.ReadFile(path); string(b) != "precious" {
		t.Errorf("the file is now %q, %v", b, err)
	}
}

func TestSocketOfASuccessorStaysWhenTheOldListenerCloses(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	old, err := api.Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	successor, err := api.Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer successor.Close()
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the successor's socket: %v", err)
	}
}

func TestSocketPathsThatCannotBeAreRefusedWithoutNamingThem(t *testing.T) {
	for name, path := range map[string]string{
		"long":         filepath.Join(shortDir(t), strings.Repeat("x", 120)),
		"no directory": filepath.Join(shortDir(t), "secret", "s"),
	} {
		_, err := api.Listen(path, 0o600)
		if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "xxx") {
			t.Errorf("%s: got %v, want an error without the path", name, err)
		}
	}
}

func TestConnectionsOfOneUIDAreLimited(t *testing.T) {
	w := newWorld(t, script{})
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range api.MaxPerUID {
		conns = append(conns, dial(t, w.socket))
	}
	// The last one is known to be accepted once it is answered.
	if line, err := ask(conns[len(conns)-1]); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("the last allowed connection: %q, %v", line, err)
	}
	more := dial(t, w.socket)
	defer more.Close()
	if line, err := ask(more); err == nil {
		t.Errorf("one connection too many was answered: %q", line)
	}
	conns[0].Close()
	w.until("there is room again", func() bool {
		c := dial(t, w.socket)
		defer c.Close()
		_, err := ask(c)
		return err == nil
	})
}

func TestPrincipalsLeaveConnectionsForRoot(t *testing.T) {
	l, err := api.Listen(filepath.Join(shortDir(t), "s"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, uid := range []int{shopUID, acmeUID, otherUID} {
		for range api.MaxPerUID {
			api.Enter(l, uid)
		}
	}
	if api.Enter(l, nobody) {
		t.Error("one connection too many was let in")
	}
	for _, uid := range []int{0, os.Geteuid()} {
		if !api.Enter(l, uid) {
			t.Errorf("uid %d was not let in", uid)
		}
	}
}

func dial(t *testing.T, socket string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ask(c net.Conn) (string, error) {
	if _, err := fmt.Fprint(c, "GET /livez HTTP/1.1\r\nHost: outboxd\r\n\r\n"); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

func TestHeadersAreBounded(t *testing.T) {
	w := newWorld(t, script{})
	res, _ := w.raw("GET", "/livez", map[string]string{"X-Long": strings.Repeat("x", 64<<10)}, "")
	if res.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %d, want 431", res.status)
	}
}

func TestClientOfNoDaemonSaysSo(t *testing.T) {
	c := api.NewClient(api.Socket(filepath.Join(shortDir(t), "none")))
	_, err := c.Tools(context.Background())
	if _, ok := errors.AsType[*api.Problem](err); ok || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that there is no socket", err)
	}
}
