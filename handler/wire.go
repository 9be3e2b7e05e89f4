package handler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/outboxd/outboxd/chaos/point"
)

const (
	// maxHeaders bounds an answer's header, in bytes.
	maxHeaders = 64 << 10
	// idleLimit is shorter than what servers usually grant (5 s and more), so
	// that it is we who let go of an idle connection.
	idleLimit = 2 * time.Second
)

// wire is the way to one endpoint. It speaks HTTP/1.1 only: the HTTP/2
// transport resends by itself what a server refused or was too slow to take.
type wire struct {
	transport *http.Transport
	tls       *tls.Config
}

// newWire makes a wire that keeps at most reuse idle connections; with 0 every
// request has a connection of its own. A nil proxy means none: the environment
// is not asked.
func newWire(cfg *tls.Config, proxy *url.URL, reuse int) *wire {
	w := &wire{tls: cfg}
	var http1 http.Protocols
	http1.SetHTTP1(true)
	w.transport = &http.Transport{
		Protocols:              &http1,
		DialContext:            w.dial,
		DialTLSContext:         w.dialTLS,
		TLSClientConfig:        cfg, // behind a proxy the transport shakes hands itself
		DisableCompression:     true,
		DisableKeepAlives:      reuse == 0,
		MaxIdleConnsPerHost:    reuse,
		IdleConnTimeout:        idleLimit,
		MaxResponseHeaderBytes: maxHeaders,
		OnProxyConnectResponse: refusedByProxy,
	}
	if proxy != nil {
		w.transport.Proxy = http.ProxyURL(proxy)
	}
	return w
}

func (w *wire) close() { w.transport.CloseIdleConnections() }

// proxyRefusal is a proxy's refusal to open a tunnel.
type proxyRefusal struct{ status int }

func (e *proxyRefusal) Error() string { return fmt.Sprintf("proxy answered %d", e.status) }

func refusedByProxy(_ context.Context, _ *url.URL, _ *http.Request, res *http.Response) error {
	if res.StatusCode != http.StatusOK {
		return &proxyRefusal{res.StatusCode}
	}
	return nil
}

// The phases of an attempt that can be told apart from outside.
const (
	phaseStart int32 = iota
	phaseDNS
	phaseConnect
	phaseTLS
	phaseReady  // a connection is ours
	phaseAnswer // the first byte of an answer arrived
)

// attempt watches one request. Its context bounds the dialling, from which the
// transport detaches the request's own.
type attempt struct {
	ctx   context.Context
	phase atomic.Int32

	// Written and read on RoundTrip's goroutine only.
	ready bool
	conn  *countedConn
}

type attemptKey struct{}

func (a *attempt) trace() context.Context {
	return httptrace.WithClientTrace(context.WithValue(a.ctx, attemptKey{}, a), &httptrace.ClientTrace{
		DNSStart:             func(httptrace.DNSStartInfo) { a.reach(phaseDNS) },
		ConnectStart:         func(string, string) { a.reach(phaseConnect) },
		TLSHandshakeStart:    func() { a.reach(phaseTLS) },
		GotConn:              func(info httptrace.GotConnInfo) { a.got(info.Conn) },
		WroteRequest:         func(httptrace.WroteRequestInfo) { point.Hit(point.SendSent) },
		GotFirstResponseByte: func() { a.reach(phaseAnswer) },
	})
}

// reach never goes back: a dial that is no longer needed may still report.
func (a *attempt) reach(phase int32) {
	for now := a.phase.Load(); now < phase; now = a.phase.Load() {
		if a.phase.CompareAndSwap(now, phase) {
			return
		}
	}
}

func (a *attempt) got(conn net.Conn) {
	a.reach(phaseReady)
	a.ready = true
	a.conn = counted(conn)
	if a.conn != nil {
		a.conn.begin()
	}
}

// handedOver reports whether a byte of the request may have left. It is asked
// after RoundTrip returned an error: the transport's writer has ended then and
// the connection is closed, so the answer cannot change any more.
func (a *attempt) handedOver() bool {
	if !a.ready {
		return false
	}
	// A connection that we did not open: nothing is known.
	return a.conn == nil || a.conn.used()
}

// countedConn knows whether a request went out over it. The bytes are counted
// at the socket, below TLS, because a TLS write that fails does not say how
// much of it left; asked is counted above TLS, because closing writes an alert
// that is not part of the request.
type countedConn struct {
	net.Conn
	bytes *atomic.Int64
	mark  int64 // bytes when the present request began
	asked atomic.Bool
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.asked.Store(true)
	n, err := c.Conn.Write(p)
	if _, sealed := c.Conn.(*tls.Conn); !sealed {
		c.bytes.Add(int64(n))
	}
	return n, err
}

// begin starts a request: what was written before (a handshake, an earlier
// request) does not count, and the deadline of the dialling ends.
func (c *countedConn) begin() {
	c.asked.Store(false)
	c.mark = c.bytes.Load()
	// A connection that is already closed cannot take it, nor the request.
	_ = c.SetDeadline(time.Time{})
}

func (c *countedConn) used() bool { return c.asked.Load() && c.bytes.Load() != c.mark }

// counted finds our connection under the layers of the transport.
func counted(conn net.Conn) *countedConn {
	for {
		switch c := conn.(type) {
		case *countedConn:
			return c
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// dial opens a connection for the attempt that the context belongs to.
func (w *wire) dial(detached context.Context, network, addr string) (net.Conn, error) {
	a, ok := detached.Value(attemptKey{}).(*attempt)
	if !ok {
		return nil, errors.New("dial without an attempt")
	}
	ctx := a.ctx
	if trace := httptrace.ContextClientTrace(detached); trace != nil {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{DNSStart: trace.DNSStart, ConnectStart: trace.ConnectStart})
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	// Talking to a proxy is bounded by nothing else.
	if limit, ok := a.ctx.Deadline(); ok {
		if err := conn.SetDeadline(limit); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return &countedConn{Conn: conn, bytes: new(atomic.Int64)}, nil
}

// dialTLS opens a connection and shakes hands, also bounded by the attempt.
func (w *wire) dialTLS(detached context.Context, network, addr string) (net.Conn, error) {
	conn, err := w.dial(detached, network, addr)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	a := detached.Value(attemptKey{}).(*attempt)
	a.reach(phaseTLS)
	cfg := w.tls.Clone()
	cfg.ServerName = host
	sealed := tls.Client(conn, cfg)
	if err := sealed.HandshakeContext(a.ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &countedConn{Conn: sealed, bytes: conn.(*countedConn).bytes}, nil
}
