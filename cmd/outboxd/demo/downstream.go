package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// Forgetful is a fault: the downstream forgets which keys it knows and takes
// effect at each request. The demo must notice.
const Forgetful = "forgetful"

// ErrUnknownFault says that there is no fault of that name.
var ErrUnknownFault = errors.New("no such fault: " + Forgetful + " is the only one")

// request is one that the downstream received, as it saw it.
type request struct {
	Operation string `json:"operation"` // status_ref
	Key       string `json:"key"`       // the wire key
	Attempt   int    `json:"attempt"`
	Token     int64  `json:"token"`
	Body      string `json:"body"` // hex SHA-256
}

// testimony is all that the downstream counted since it started.
type testimony struct {
	Requests  []request      `json:"requests"` // in the order of their arrival
	Effects   map[string]int `json:"effects"`  // by wire key
	Questions map[string]int `json:"questions"`
}

// of returns the requests for one operation.
func (t testimony) of(ref string) (list []request) {
	for _, r := range t.Requests {
		if r.Operation == ref {
			list = append(list, r)
		}
	}
	return list
}

// effects of one operation: of each key that it came with.
func (t testimony) effects(ref string) int   { return sum(t.Effects, t.of(ref)) }
func (t testimony) questions(ref string) int { return sum(t.Questions, t.of(ref)) }

func sum(counts map[string]int, requests []request) (n int) {
	keys := map[string]bool{}
	for _, r := range requests {
		if !keys[r.Key] {
			n += counts[r.Key]
		}
		keys[r.Key] = true
	}
	return n
}

// downstream is somebody else's service: it does things once per key, is busy,
// loses answers and refuses, each under a path of its own.
type downstream struct {
	forgetful bool

	mu   sync.Mutex // guards what follows
	seen testimony
}

// Downstream serves on a port of its own, prints its address as the first line
// of stdout, and ends when stdin does or ctx.
func Downstream(ctx context.Context, stdin io.Reader, stdout io.Writer, fault string) error {
	if fault != "" && fault != Forgetful {
		return ErrUnknownFault
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	srv := &http.Server{Handler: newDownstream(fault == Forgetful).routes(), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	go func() { // ends with stdin; after ctx, with the process
		_, _ = io.Copy(io.Discard, stdin)
		_ = srv.Close()
	}()
	if _, err := fmt.Fprintf(stdout, "http://%s\n", ln.Addr()); err != nil {
		return errors.Join(fmt.Errorf("print address: %w", err), ln.Close())
	}
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func newDownstream(forgetful bool) *downstream {
	return &downstream{forgetful: forgetful, seen: testimony{Effects: map[string]int{}, Questions: map[string]int{}}}
}

func (d *downstream) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /receipt", d.received(d.receipt))
	mux.HandleFunc("POST /courier", d.received(d.courier))
	mux.HandleFunc("POST /refund", d.received(d.refund))
	mux.HandleFunc("GET /refund/{key}", d.refunded)
	mux.HandleFunc("POST /label", d.received(d.label))
	mux.HandleFunc("POST /parcel", d.received(d.parcel))
	mux.HandleFunc("GET /witness", d.witness)
	return mux
}

// received counts a request before anything is made of it, and hands over its
// key and how many there have been with that key.
func (d *downstream) received(serve func(w http.ResponseWriter, r *http.Request, key string, nth int)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "unreadable", http.StatusBadRequest)
			return
		}
		digest := sha256.Sum256(body)
		attempt, _ := strconv.Atoi(r.Header.Get("Outbox-Attempt")) // 0: a check finds it
		token, _ := strconv.ParseInt(r.Header.Get("Outbox-Fencing-Token"), 10, 64)
		key := strings.Trim(r.Header.Get("Idempotency-Key"), `"`)
		nth := d.count(request{
			Operation: r.Header.Get("Outbox-Operation"), Key: key,
			Attempt: attempt, Token: token, Body: hex.EncodeToString(digest[:]),
		})
		serve(w, r, key, nth)
	}
}

func (d *downstream) count(r request) (nth int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen.Requests = append(d.seen.Requests, r)
	for _, other := range d.seen.Requests {
		if other.Key == r.Key {
			nth++
		}
	}
	return nth
}

// once takes effect, unless it did so for this key.
func (d *downstream) once(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.forgetful || d.seen.Effects[key] == 0 {
		d.seen.Effects[key]++
	}
}

func (d *downstream) receipt(w http.ResponseWriter, _ *http.Request, key string, _ int) {
	d.once(key)
	answer(w, http.StatusOK, "receipt sent")
}

func (d *downstream) courier(w http.ResponseWriter, _ *http.Request, key string, nth int) {
	if busy := map[int]int{1: http.StatusTooManyRequests, 2: http.StatusServiceUnavailable}[nth]; busy != 0 {
		w.Header().Set("Retry-After", "2")
		answer(w, busy, "busy, come back in two seconds")
		return
	}
	d.once(key)
	answer(w, http.StatusOK, "courier booked")
}

// refund takes effect and closes the connection without an answer.
func (d *downstream) refund(_ http.ResponseWriter, _ *http.Request, key string, _ int) {
	d.once(key)
	panic(http.ErrAbortHandler)
}

// refunded answers a question about a key.
func (d *downstream) refunded(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	key := r.PathValue("key")
	d.seen.Questions[key]++
	done := d.seen.Effects[key] > 0
	d.mu.Unlock()
	if !done {
		answer(w, http.StatusNotFound, "no such refund")
		return
	}
	answer(w, http.StatusOK, "refunded")
}

func (d *downstream) label(w http.ResponseWriter, _ *http.Request, _ string, _ int) {
	answer(w, http.StatusUnprocessableEntity, "no such format")
}

// parcel takes effect and then, the first time, answers only when nobody
// listens any more.
func (d *downstream) parcel(w http.ResponseWriter, r *http.Request, key string, nth int) {
	d.once(key)
	if nth == 1 {
		<-r.Context().Done()
	}
	answer(w, http.StatusOK, "parcel sent")
}

func (d *downstream) witness(w http.ResponseWriter, _ *http.Request) {
	d.mu.Lock()
	t := testimony{slices.Clone(d.seen.Requests), maps.Clone(d.seen.Effects), maps.Clone(d.seen.Questions)}
	d.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.MarshalWrite(w, t) // who asked is gone: it asks again
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "{\"answer\":%q}\n", text) // an answer may be lost: that is the point
}
