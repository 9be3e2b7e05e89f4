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
	"sync"
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

// wire is the way to one endpoint. It speaks HTTP/1.1 and, where the server
// chooses it in the TLS handshake, HTTP/2. A request has its connection to itself
// and is tried on that one only: a client that picks connections (http.Transport)
// sends some requests a second time by itself.
type wire struct {
	transport *http.Transport
	scheme    string
	address   string // host:port of the target
	reuse     int    // idle connections that are kept; 0: none is used twice

	mu     sync.Mutex // guards what follows
	idle   []*line    // the last used one at the end
	closed bool
}

// newWire makes a wire that keeps at most reuse idle connections; with 0 every
// request has a connection of its own. A nil proxy means none: the environment
// is not asked.
func newWire(target *url.URL, cfg *tls.Config, proxy *url.URL, reuse int) *wire {
	w := &wire{scheme: target.Scheme, address: addressOf(target), reuse: reuse}
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetHTTP2(true)
	w.transport = &http.Transport{
		Protocols:              &both,
		DialContext:            dial,
		TLSClientConfig:        cfg,
		DisableCompression:     true,
		DisableKeepAlives:      reuse == 0,
		IdleConnTimeout:        idleLimit,
		MaxResponseHeaderBytes: maxHeaders,
		OnProxyConnectResponse: refusedByProxy,
	}
	if proxy != nil {
		w.transport.Proxy = http.ProxyURL(proxy)
	}
	return w
}

func addressOf(target *url.URL) string {
	port := target.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[target.Scheme]
	}
	return net.JoinHostPort(target.Hostname(), port)
}

// line is one connection. It belongs to one attempt at a time, or to its wire.
type line struct {
	*http.ClientConn
	conn *countedConn
	free *time.Timer // closes it when it was idle for too long
}

// take is an idle connection, or a new one.
func (w *wire) take(a *attempt) (*line, error) {
	for l := w.pop(); l != nil; l = w.pop() {
		if l.free.Stop() && l.Err() == nil {
			return l, nil
		}
		_ = l.Close() // idle, and the other side may have closed it
	}
	cc, err := w.transport.NewClientConn(a.trace(), w.scheme, w.address)
	if err != nil {
		return nil, err
	}
	return &line{ClientConn: cc, conn: a.conn}, nil
}

func (w *wire) pop() *line {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.idle) == 0 {
		return nil
	}
	l := w.idle[len(w.idle)-1]
	w.idle = w.idle[:len(w.idle)-1]
	return l
}

// give keeps a connection on which a whole answer was read and nothing is under
// way, and closes any other.
func (w *wire) give(l *line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.idle) >= w.reuse || l.Err() != nil || l.InFlight() != 0 || l.Available() == 0 {
		_ = l.Close()
		return
	}
	l.free = time.AfterFunc(idleLimit, func() { _ = l.Close() })
	w.idle = append(w.idle, l)
}

// close ends the idle connections, and those in use when they become idle.
func (w *wire) close() {
	w.mu.Lock()
	idle := w.idle
	w.idle, w.closed = nil, true
	w.mu.Unlock()
	for _, l := range idle {
		l.free.Stop()
		_ = l.Close()
	}
}

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

// attempt watches one request.
type attempt struct {
	ctx   context.Context
	phase atomic.Int32
	conn  *countedConn // the connection that was dialled or taken; nil: none so far
	begun bool         // the request was given to the connection
}

type attemptKey struct{}

func (a *attempt) trace() context.Context {
	return httptrace.WithClientTrace(context.WithValue(a.ctx, attemptKey{}, a), &httptrace.ClientTrace{
		DNSStart:             func(httptrace.DNSStartInfo) { a.reach(phaseDNS) },
		ConnectStart:         func(string, string) { a.reach(phaseConnect) },
		TLSHandshakeStart:    func() { a.reach(phaseTLS) },
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

// send gives the request to the connection, once. A connection on which it
// failed is of no more use and is closed before anybody asks what has left.
func (a *attempt) send(l *line, req *http.Request) (*http.Response, error) {
	a.reach(phaseReady)
	a.conn, a.begun = l.conn, true
	a.conn.begin()
	res, err := l.RoundTrip(req.WithContext(a.trace()))
	if err != nil {
		a.conn.end()
		_ = l.Close()
	}
	return res, err
}

// handedOver reports whether a byte of the request may have left. It is asked
// after send returned an error: nothing more can leave then.
func (a *attempt) handedOver() bool { return a.begun && a.conn.used() }

// countedConn knows whether a request went out over it. It counts at the socket,
// below TLS, because a TLS write that fails does not say how much of it left.
// What HTTP/2 writes beside the request counts as the request: that errs towards
// "may have happened".
type countedConn struct {
	net.Conn
	mu      sync.Mutex // guards what follows, and is not held during a write
	bytes   int64
	mark    int64 // bytes when the present request began
	ended   bool  // nothing counts any more
	writing int
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.writing++
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing--
	if !c.ended {
		c.bytes += int64(n)
	}
	return n, err
}

// begin starts a request: what was written before (a handshake, an earlier
// request) does not count, and the deadline of the dialling ends.
func (c *countedConn) begin() {
	c.mu.Lock()
	c.mark = c.bytes
	c.mu.Unlock()
	// A connection that is already closed cannot take it, nor the request.
	_ = c.SetDeadline(time.Time{})
}

// end closes the socket below TLS. A write that is under way may have left; what
// follows (an alert of TLS that says goodbye) cannot.
func (c *countedConn) end() {
	c.mu.Lock()
	c.bytes += int64(c.writing)
	c.ended = true
	c.mu.Unlock()
	_ = c.Close()
}

func (c *countedConn) used() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes != c.mark
}

// dial opens a connection for the attempt that the context belongs to.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return nil, errors.New("dial without an attempt")
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
	a.conn = &countedConn{Conn: conn}
	return a.conn, nil
}
