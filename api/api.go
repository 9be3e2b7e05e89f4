package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/poller"
)

// Deps is what an API works on.
type Deps struct {
	Ledger  *ledger.Ledger
	Poller  *poller.Poller
	Access  *Access
	Log     *zap.Logger
	Version string

	Metrics http.Handler // nil: there is no /metrics
	Live    func() error // nil: alive. The text of its error is shown
	Ready   func() error // nil: ready. The text of its error is shown

	// Purge removes what is older than the retention. nil: there is no such route.
	Purge func(context.Context) (intake.Purged, error)

	// Submitted is told the code of the answer to each submit. nil: nobody is.
	Submitted func(code string)

	// Reload reads the config again; a *config.Problems says what is wrong with it.
	// restart are the sections that it changed nothing of. nil: there is no reload.
	Reload func(context.Context) (restart []string, err error)

	// Config is what is in force, and why the last reload failed. nil: there is no
	// such route.
	Config func() (in *config.Config, problem string)
}

// limits are how long things may take.
type limits struct {
	accept   time.Duration // the wait for the write lock and the commit, or for a free reader
	scan     time.Duration // a statement that may look at many rows
	transfer time.Duration // what the caller takes to send or take its bytes
}

// usual limits: a scan and the wait for it end before the time for its answer.
func usual() limits {
	return limits{accept: 5 * time.Second, scan: 20 * time.Second, transfer: transferTime}
}

const transferTime = 30 * time.Second

// API answers requests. It is safe for concurrent use.
type API struct {
	d      Deps
	mux    *http.ServeMux
	access atomic.Pointer[Access]
	limits limits
	scans  *places // of statements that may look at many rows
	audits *places
	cares  *places // of backups and purges
	waiters
}

// New returns the handler. Requests reach it through Serve or Local, which say
// who asks.
func New(d Deps) *API {
	s := &API{d: d, mux: http.NewServeMux(), limits: usual(), scans: newPlaces(2), audits: newPlaces(1), cares: newPlaces(1)}
	s.access.Store(d.Access)
	s.route("POST /v1/operations", s.counted(s.submit))
	s.route("POST /v1/dispatch", s.dispatch)
	s.route("GET /v1/operations", s.list)
	s.route("GET /v1/operations/{ref}", s.status)
	s.route("GET /v1/operations/{ref}/attempts", s.attempts)
	s.route("POST /v1/operations/{ref}/reconcile", s.reconcile)
	s.route("POST /v1/operations/{ref}/cancel", operators(s.cancel))
	s.route("GET /v1/operations/{ref}/detail", operators(s.detail))
	s.route("POST /v1/review", operators(s.review))
	s.route("GET /v1/dead", operators(s.dead))
	s.route("GET /v1/dead/groups", operators(s.deadGroups))
	s.route("GET /v1/tools/{name}/backoff", operators(s.backoff))
	s.route("POST /v1/tools/{name}/simulate", operators(s.simulate))
	s.sessionRoutes()
	s.route("POST /v1/operations/{ref}/approve", s.approve)
	s.route("GET /v1/refused", operators(s.refused))
	s.route("GET /v1/tools", operators(s.tools))
	s.route("POST /v1/tools/{name}/pause", operators(s.pause))
	s.route("POST /v1/tools/{name}/resume", operators(s.resume))
	s.route("GET /v1/audit", operators(s.audit))
	s.route("POST /v1/db/release", operators(s.release))
	s.route("POST /v1/db/backup", operators(s.backup))
	if d.Purge != nil {
		s.route("POST /v1/db/purge", operators(s.purge))
	}
	if d.Config != nil {
		s.route("GET /v1/config", operators(s.config))
	}
	if d.Reload != nil {
		s.route("POST /v1/reload", operators(s.reload))
	}
	s.mux.HandleFunc("GET /livez", probe(d.Live))
	s.mux.HandleFunc("GET /readyz", probe(d.Ready))
	if d.Metrics != nil {
		s.mux.Handle("GET /metrics", d.Metrics)
	}
	return s
}

// Swap puts the rules of a new configuration in the place of the old ones.
func (s *API) Swap(a *Access) { s.access.Store(a) }

// ServeHTTP implements http.Handler.
func (s *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server", "outboxd/"+s.d.Version)
	if foreign(r) {
		writeProblem(w, problem("FOREIGN_ORIGIN"))
		return
	}
	if r.ContentLength != 0 { // also a body that nobody looks at is awaited before the answer goes out
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.limits.transfer)) // as in allow
	}
	if asked := r.URL.EscapedPath(); asked != path.Clean(asked) {
		writeProblem(w, problem("NO_SUCH_ROUTE")) // the mux would redirect, which nobody follows
		return
	}
	if _, pattern := s.mux.Handler(r); pattern == "" {
		s.mux.ServeHTTP(&unrouted{ResponseWriter: w}, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// foreign reports whether a web page may be behind a request: a browser names an
// origin, or how the page relates to it, or a host with a domain or a port.
// Clients of a unix socket have no host to name and send "outboxd" or any word.
func foreign(r *http.Request) bool {
	h := r.Header
	return h["Origin"] != nil || h["Sec-Fetch-Site"] != nil || strings.ContainsAny(r.Host, ".:")
}

// unrouted turns the answer of the mux for what it does not know into a problem.
type unrouted struct {
	http.ResponseWriter
}

func (u *unrouted) WriteHeader(status int) {
	p := problem("NO_SUCH_ROUTE")
	if status == http.StatusMethodNotAllowed {
		p = problem("METHOD_NOT_ALLOWED")
	}
	writeProblem(u.ResponseWriter, p)
}

func (u *unrouted) Write(b []byte) (int, error) { return len(b), nil }

// call is one request to a route under /v1, with who asks and what that uid may
// do now.
type call struct {
	*http.Request
	w      http.ResponseWriter
	peer   peer
	access *Access
	limits limits
}

// route answers with what fn returns: a value, or an error that becomes a problem.
func (s *API) route(pattern string, fn func(*call) (reply, error)) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		peer, ok := peerOf(r.Context())
		if !ok {
			writeProblem(w, problem("AUTHORIZATION_DENIED"))
			return
		}
		c := &call{Request: r, w: w, peer: peer, access: s.access.Load(), limits: s.limits}
		out, err := fn(c)
		if err == nil {
			err = s.sound()
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		write(w, "application/json", out.status, out.body)
	})
}

// sound is the error of a file that a COMMIT has left in doubt: what was read
// from it may be what the next start does not find.
func (s *API) sound() error {
	if err := s.d.Ledger.Err(); errors.Is(err, ledger.ErrCommitUnknown) {
		return err
	}
	return nil
}

// reply is what a route answers with when there is no error.
type reply struct {
	status int
	body   any
}

func ok(body any) (reply, error) { return reply{http.StatusOK, body}, nil }

// operators refuses everybody else.
func operators(fn func(*call) (reply, error)) func(*call) (reply, error) {
	return func(c *call) (reply, error) {
		if !c.access.operator(c.peer) {
			return reply{}, problem("AUTHORIZATION_DENIED")
		}
		return fn(c)
	}
}

// allow moves the limit for sending the answer: this call may take that long.
func (c *call) allow(d time.Duration) {
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(d + c.limits.transfer)) // a writer without one has no limit
}

// heard is how much of a body that is refused is read before the answer, in bytes.
const heard = 16 << 20

// body reads a strict JSON body into v; none at all leaves v as it is.
func (c *call) body(v any) error {
	if c.ContentLength == 0 {
		return nil
	}
	if !isJSON(c.Header) {
		return problem("UNSUPPORTED_MEDIA_TYPE")
	}
	raw, err := c.read()
	if err != nil {
		_, _ = io.CopyN(io.Discard, c.Body, heard) // who reads only after it has written hears the answer too
	}
	c.allow(c.limits.accept) // what the body took is not taken off the answer's time
	if err != nil {
		c.w.Header().Set("Connection", "close") // the rest of the body is not waited for
		return err
	}
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{}) // as in allow
	return decode(raw, v)
}

func isJSON(h http.Header) bool {
	if h["Content-Encoding"] != nil {
		return false
	}
	kind := h.Get("Content-Type")
	if kind == "application/json" {
		return true
	}
	kind, params, err := mime.ParseMediaType(kind)
	charset, named := params["charset"]
	return err == nil && kind == "application/json" && (!named || strings.EqualFold(charset, "utf-8"))
}

func (c *call) read() ([]byte, error) {
	if c.ContentLength > MaxBody {
		return nil, problem("BODY_TOO_LARGE")
	}
	raw := make([]byte, max(0, c.ContentLength))
	if _, err := io.ReadFull(c.Body, raw); err != nil {
		return nil, unread(err)
	}
	if c.ContentLength >= 0 {
		return raw, nil
	}
	raw, err := io.ReadAll(io.LimitReader(c.Body, MaxBody+1))
	if err != nil {
		return nil, unread(err)
	}
	if len(raw) > MaxBody {
		return nil, problem("BODY_TOO_LARGE")
	}
	return raw, nil
}

// unread is the problem of a body that did not arrive: it is the caller's.
func unread(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return problem("BODY_LATE")
	}
	return problem("BODY_INCOMPLETE")
}

func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		status, text := http.StatusOK, "ok"
		if check != nil {
			if err := check(); err != nil {
				status, text = http.StatusServiceUnavailable, err.Error()
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text+"\n") // the peer's loss
	}
}

func writeProblem(w http.ResponseWriter, p *Problem) {
	write(w, "application/problem+json", p.Status, p)
}

// write sends a body. What an application inserted may be no UTF-8: it is shown
// with replacement characters.
func write(w http.ResponseWriter, kind string, status int, body any) {
	b, err := json.Marshal(body, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic(fmt.Sprintf("encode answer: %v", err)) // our own types: a mistake of this package
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the peer's loss
}
