package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	_ "modernc.org/sqlite"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"outboxd": main})
}

// patience is how long a script waits for what another process does.
const patience = 20 * time.Second

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			w := newWitness()
			e.Defer(w.close)
			e.Values[witnessKey{}] = w
			e.Setenv("DOWNSTREAM", w.server.URL)
			e.Setenv("UID", strconv.Itoa(os.Getuid()))
			e.Setenv("GORACE", "atexit_sleep_ms=0") // else every command of a race build takes a second
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "expand": expand, "listening": listening, "ref": ref,
			"effects": effects, "signal": signalled, "mode": mode, "appears": appears, "arrived": arrived, "release": release, "insert": insert,
		},
	})
}

// witness is a downstream that counts effects by key.
type witness struct {
	server  *httptest.Server
	arrived chan struct{} // one for each call of /slow
	free    chan struct{} // closed: /slow answers
	once    sync.Once

	mu   sync.Mutex // guards what follows
	keys map[string]int
}

type witnessKey struct{}

func newWitness() *witness {
	w := &witness{arrived: make(chan struct{}, 100), free: make(chan struct{}), keys: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /do", func(rw http.ResponseWriter, r *http.Request) { w.effect(rw, r) })
	mux.HandleFunc("POST /slow", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the server notices who goes away
		w.arrived <- struct{}{}
		select {
		case <-w.free:
			w.effect(rw, r)
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("POST /refuse", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusUnprocessableEntity) })
	mux.HandleFunc("POST /lose", func(rw http.ResponseWriter, r *http.Request) {
		w.count(r.Header.Get("Idempotency-Key"))
		rw.WriteHeader(http.StatusInternalServerError)
	})
	mux.HandleFunc("GET /asked/{key}", func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.keys[strconv.Quote(r.PathValue("key"))] == 0 {
			rw.WriteHeader(http.StatusNotFound)
			return
		}
		reply(rw, `{"found":true}`)
	})
	w.server = httptest.NewServer(mux)
	return w
}

func (w *witness) close() {
	w.release()
	w.server.CloseClientConnections()
	w.server.Close()
}

func (w *witness) release() { w.once.Do(func() { close(w.free) }) }

func (w *witness) effect(rw http.ResponseWriter, r *http.Request) {
	w.count(r.Header.Get("Idempotency-Key"))
	reply(rw, `{"done":true}`)
}

func reply(rw http.ResponseWriter, body string) {
	rw.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(rw, body) // the daemon may be gone
}

func (w *witness) count(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys[key]++
}

func witnessOf(ts *testscript.TestScript) *witness {
	w, _ := ts.Value(witnessKey{}).(*witness)
	return w
}

// exits STATUS PROGRAM ARG... runs a program that must end with this status.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM ARG...")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		e, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("run %s: %v", args[1], err)
		}
		got = e.ExitCode()
	}
	if want := args[0]; strconv.Itoa(got) != want {
		ts.Fatalf("exit status is %d, want %s", got, want)
	}
}

// expand FILE... puts the script's variables into files.
func expand(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}

// listening SOCKET waits until something takes connections there.
func listening(ts *testscript.TestScript, neg bool, args []string) {
	await(ts, "something listens at "+args[0], func() bool {
		c, err := net.Dial("unix", ts.MkAbs(args[0]))
		if err == nil {
			c.Close()
		}
		return (err == nil) != neg
	})
}

// appears PATTERN FILE waits until a file has the pattern.
func appears(ts *testscript.TestScript, _ bool, args []string) {
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	await(ts, args[0]+" in "+args[1], func() bool {
		b, err := os.ReadFile(ts.MkAbs(args[1]))
		return err == nil && pattern.Match(b)
	})
}

func await(ts *testscript.TestScript, what string, is func() bool) {
	over := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-over:
			ts.Fatalf("waited %s in vain until %s", patience, what)
		case <-tick.C:
		}
	}
}

// ref VARIABLE keeps the status_ref of the last answer.
func ref(ts *testscript.TestScript, _ bool, args []string) {
	var ans struct {
		StatusRef string `json:"status_ref"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &ans))
	if ans.StatusRef == "" {
		ts.Fatalf("the last answer has no status_ref")
	}
	ts.Setenv(args[0], ans.StatusRef)
}

// effects KEYS CALLS compares what the downstream did.
func effects(ts *testscript.TestScript, _ bool, args []string) {
	w := witnessOf(ts)
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := 0
	for _, n := range w.keys {
		calls += n
	}
	if strconv.Itoa(len(w.keys)) != args[0] || strconv.Itoa(calls) != args[1] {
		ts.Fatalf("the downstream counted %d keys in %d calls, want %s in %s", len(w.keys), calls, args[0], args[1])
	}
}

// arrived waits for a call of /slow.
func arrived(ts *testscript.TestScript, _ bool, _ []string) {
	select {
	case <-witnessOf(ts).arrived:
	case <-time.After(patience):
		ts.Fatalf("no call arrived")
	}
}

// release lets /slow answer.
func release(ts *testscript.TestScript, _ bool, _ []string) { witnessOf(ts).release() }

// signal NAME sends a signal to every background process.
func signalled(ts *testscript.TestScript, _ bool, args []string) {
	sig := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "INT": syscall.SIGINT}[args[0]]
	for _, c := range ts.BackgroundCmds() {
		ts.Check(c.Process.Signal(sig))
	}
}

// mode OCTAL FILE... compares permissions.
func mode(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args[1:] {
		st, err := os.Lstat(ts.MkAbs(name))
		ts.Check(err)
		if got := strconv.FormatUint(uint64(st.Mode().Perm()), 8); got != args[0] {
			ts.Fatalf("%s has mode %s, want %s", name, got, args[0])
		}
	}
}

// insert is what an application does: insert DATABASE TOOL ARGUMENTS.
func insert(ts *testscript.TestScript, _ bool, args []string) {
	db, err := sql.Open("sqlite", "file:"+ts.MkAbs(args[0])+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	ts.Check(err)
	defer db.Close()
	_, err = db.Exec(`INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)
		VALUES ('acme', 'shop', ?, 'inserted', ?)`, args[1], args[2])
	ts.Check(err)
}
