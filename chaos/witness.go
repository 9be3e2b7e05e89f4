package chaos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Behaviour is what a witness does with the first request of a key; the later
// ones are answered at once. In a URL a duration follows some: slow-200ms.
type Behaviour string

// The behaviours.
const (
	Now    Behaviour = "now"    // takes effect and answers
	Slow   Behaviour = "slow"   // takes effect, waits, answers
	Steady Behaviour = "steady" // as Slow, at every request
	Balk   Behaviour = "balk"   // waits, answers 503 without effect; later requests as Steady
	Edge   Behaviour = "edge"   // as Slow, but waits 95 to 105 % of its time
	Drop   Behaviour = "drop"   // takes effect and closes the connection
	Fail   Behaviour = "fail"   // takes effect and answers 500
	Busy   Behaviour = "busy"   // answers 503 with Retry-After, without effect
	Reject Behaviour = "reject" // answers 422, without effect
	Silent Behaviour = "silent" // waits without an effect, at every request
	Mixed  Behaviour = "mixed"  // any of the above up to Busy, by key; the first two requests
)

// Witness is a downstream. Its tools are paths, /CLASS/BEHAVIOUR: an idempotent
// one takes effect once per key, a queryable and an opaque one at each request.
// GET /CLASS/BEHAVIOUR/KEY tells whether a key took effect.
type Witness struct {
	journal *journal

	mu   sync.Mutex // guards what follows
	keys map[string]*account
}

// account is what is known of one wire key.
type account struct {
	requests int
	effects  int
}

// NewWitness writes to the journal at path, after what stands there.
func NewWitness(path string) (*Witness, error) {
	past, err := ReadJournal(path)
	if err != nil {
		return nil, err
	}
	j, err := openJournal(path)
	if err != nil {
		return nil, err
	}
	w := &Witness{journal: j, keys: map[string]*account{}}
	for _, r := range past {
		switch a := w.account(r.Key); r.Kind {
		case Asked:
			a.requests++
		case Effect:
			a.effects++
		}
	}
	return w, nil
}

// Serve listens on a loopback port, prints its URL as the first line on out, and
// ends when in does.
func (w *Witness) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv := &http.Server{Handler: w.routes(), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	go func() { // ends with in, or with the process
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	if _, err := fmt.Fprintf(out, "http://%s\n", ln.Addr()); err != nil {
		return fmt.Errorf("print address: %w", err)
	}
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func (w *Witness) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{class}/{behaviour}", w.request)
	mux.HandleFunc("GET /{class}/{behaviour}/{key}", w.question)
	return mux
}

func (w *Witness) account(key string) *account {
	if w.keys[key] == nil {
		w.keys[key] = &account{}
	}
	return w.keys[key]
}

// request writes down what arrived and its effect, and only then answers.
func (w *Witness) request(rw http.ResponseWriter, r *http.Request) {
	seen, err := record(r)
	if err != nil {
		http.Error(rw, "unreadable", http.StatusBadRequest)
		return
	}
	do, wait := behaviour(r.PathValue("behaviour"))
	records := w.count(seen, &do, r.PathValue("class"))
	if err := w.journal.add(records...); err != nil {
		panic(err) // what is not written down did not happen: nobody may rely on it
	}
	pause(r.Context(), do, wait, seen.Key)
	switch do {
	case Drop:
		panic(http.ErrAbortHandler)
	case Fail:
		http.Error(rw, "fail", http.StatusInternalServerError)
	case Busy, Balk:
		rw.Header().Set("Retry-After", "0")
		http.Error(rw, "busy", http.StatusServiceUnavailable)
	case Reject:
		http.Error(rw, "rejected", http.StatusUnprocessableEntity)
	default:
		applied(rw, seen.Key)
	}
}

func record(r *http.Request) (Record, error) {
	at := time.Now().UnixMicro()
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return Record{}, err
	}
	digest := sha256.Sum256(body)
	attempt, _ := strconv.Atoi(r.Header.Get("Outbox-Attempt")) // 0: a check finds it
	token, _ := strconv.ParseInt(r.Header.Get("Outbox-Fencing-Token"), 10, 64)
	return Record{
		Kind: Asked, Tool: r.URL.Path, At: at, Body: hex.EncodeToString(digest[:]), Attempt: attempt, Token: token,
		Key: strings.Trim(r.Header.Get("Idempotency-Key"), `"`), Operation: r.Header.Get("Outbox-Operation"),
	}, nil
}

// count decides what this request comes to and returns what is to be written.
func (w *Witness) count(seen Record, do *Behaviour, class string) []Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.account(seen.Key)
	a.requests++
	switch {
	case *do == Mixed:
		*do = mixed(seen.Key, a.requests, class)
	case a.requests > 1 && *do == Balk:
		*do = Steady
	case a.requests > 1 && *do != Silent && *do != Steady:
		*do = Now
	}
	records := []Record{seen}
	without := *do == Busy || *do == Balk || *do == Reject || *do == Silent
	if !without && (class != "idempotent" || a.effects == 0) {
		a.effects++
		seen.Kind = Effect
		records = append(records, seen)
	}
	return records
}

// mixed picks by key and count, so that a run can be told from its seed. An
// opaque tool never says "try again": a second request with a key is a fault.
func mixed(key string, nth int, class string) Behaviour {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%s/%d", key, nth) // a hash takes everything
	n := h.Sum32() % 100
	switch {
	case nth > 2 || n < 60:
		return Now
	case n < 76:
		return Slow
	case n < 84:
		return Drop
	case n < 92 || class == "opaque":
		return Fail
	}
	return Busy
}

func behaviour(path string) (Behaviour, time.Duration) {
	name, rest, _ := strings.Cut(path, "-")
	wait, err := time.ParseDuration(rest)
	if err != nil {
		wait = 20 * time.Millisecond
	}
	return Behaviour(name), wait
}

func pause(ctx context.Context, do Behaviour, wait time.Duration, key string) {
	switch do {
	case Silent:
		wait = time.Hour
	case Edge:
		h := fnv.New32a()
		_, _ = io.WriteString(h, key) // a hash takes everything
		wait = wait*95/100 + wait/10*time.Duration(h.Sum32()%100)/100
	case Slow, Steady, Balk:
	default:
		return
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done(): // who asked is gone: the answer is tried all the same
	}
}

func (w *Witness) question(rw http.ResponseWriter, r *http.Request) {
	key := r.PathValue("key")
	seen := Record{Kind: Question, Tool: r.URL.Path, Key: key, At: time.Now().UnixMicro()}
	w.mu.Lock()
	n := w.account(key).effects
	w.mu.Unlock()
	if err := w.journal.add(seen); err != nil {
		panic(err)
	}
	if n == 0 {
		http.Error(rw, "not applied", http.StatusNotFound)
		return
	}
	applied(rw, key)
}

func applied(rw http.ResponseWriter, key string) {
	rw.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(rw, "{\"done\":%q}\n", key) // an answer may be lost: that is the point
}
