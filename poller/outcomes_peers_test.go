package poller_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
)

// talk is one side of a connection; the connection is closed after it.
type talk func(net.Conn)

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

func status(line string) string { return reply(line, "", "") }

func reply(line, header, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s", line, header, len(body), body)
}

// peer is a server on a bare TCP connection: its address.
func peer(t *testing.T, f talk) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				f(conn)
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String()
}

func closed(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// hear reads one request to its end.
func hear(conn net.Conn) bool {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err == nil
}

func says(text string) talk {
	return func(conn net.Conn) {
		if hear(conn) {
			_, _ = io.WriteString(conn, text) // the other side may have seen enough
		}
	}
}

// greets does not care what it is told, but reads it, or the connection would be
// reset before its own words arrive.
func greets(text string) talk {
	return func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1<<16))
		_, _ = io.WriteString(conn, text)
	}
}

// hangs says its text and holds the line until the other side lets go.
func hangs(t *testing.T, text string) talk {
	return func(conn net.Conn) {
		says(text)(conn)
		_, _ = io.Copy(io.Discard, conn)
	}
}

func drips(t *testing.T, text string) talk {
	return func(conn net.Conn) {
		says(text)(conn)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := io.WriteString(conn, " "); err != nil {
				return
			}
		}
	}
}

func resets(conn net.Conn) {
	_, _ = conn.Read(make([]byte, 1))
	_ = conn.(*net.TCPConn).SetLinger(0)
}

// to, at, secured and through aim a tool at a URL.
func to(url string) func(*config.Tool) {
	return func(c *config.Tool) { c.HTTP = &config.HTTP{URL: url} }
}

func at(address string) func(*config.Tool)      { return to("http://" + address + "/x") }
func secured(address string) func(*config.Tool) { return to("https://" + address + "/x") }

func through(proxy, url string) func(*config.Tool) {
	return func(c *config.Tool) { c.HTTP = &config.HTTP{URL: url, Proxy: proxy} }
}

func script(text string) func(*config.Tool) { return program("/bin/sh", "-c", text) }

func program(argv ...string) func(*config.Tool) {
	return func(c *config.Tool) { c.Exec = &config.Exec{Argv: argv, Rejected: []int{3}} }
}

func file(t *testing.T, dir, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// writes keeps the file open for writing until the test ends.
func writes(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
}

// bomb is a megabyte that unpacks to a gigabyte.
func bomb() string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	zeros := make([]byte, 1<<20)
	for range 1 << 10 {
		_, _ = z.Write(zeros) // to memory
	}
	_ = z.Close()
	return b.String()
}

// identity is a certificate that is its own authority.
type identity struct {
	pair tls.Certificate
	ca   string
}

func certify(t *testing.T, name string, until time.Time) identity {
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
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file(t, t.TempDir(), "ca.pem", string(text), 0o600)}
}

// serve is a peer that shakes hands first.
func (i identity) serve(t *testing.T, cfg *tls.Config, then func(*config.Tool)) func(*config.Tool) {
	t.Helper()
	cfg.Certificates = []tls.Certificate{i.pair}
	address := peer(t, func(conn net.Conn) {
		sealed := tls.Server(conn, cfg)
		if sealed.Handshake() == nil {
			says(ok)(sealed)
		}
		_ = sealed.Close()
	})
	return func(c *config.Tool) {
		secured(address)(c)
		c.HTTP.CAFile = i.ca
		if then != nil {
			then(c)
		}
	}
}

func (i identity) aim(t *testing.T, then func(*config.Tool)) func(*config.Tool) {
	return i.serve(t, &tls.Config{}, then)
}

func (i identity) old(t *testing.T) func(*config.Tool) {
	return i.serve(t, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, nil)
}

func (i identity) demanding(t *testing.T) func(*config.Tool) {
	return i.serve(t, &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert}, nil)
}

// names has the names of this process looked up at a name server of the test:
// missing.test does not exist, broken.test fails, silent.test gets no answer.
func names(t *testing.T) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 512); ; {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			answer := bytes.Clone(b[:n])
			switch {
			case bytes.Contains(answer, []byte("silent")):
				continue
			case bytes.Contains(answer, []byte("broken")):
				answer[2], answer[3] = 0x81, 0x82 // SERVFAIL
			default:
				answer[2], answer[3] = 0x81, 0x83 // NXDOMAIN
			}
			answer[10], answer[11] = 0, 0 // no additional section
			_, _ = server.WriteTo(question(answer), from)
		}
	}()
	was := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", server.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = was
		server.Close()
		<-done
	})
}

// question cuts a message after its one question.
func question(m []byte) []byte {
	at := 12
	for at < len(m) && m[at] != 0 {
		at += int(m[at]) + 1
	}
	return m[:min(len(m), at+5)]
}
