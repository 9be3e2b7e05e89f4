package poller_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
	"github.com/outboxd/outboxd/poller"
)

// enemy is a downstream that mistreats whoever calls it. It is a witness beside:
// it counts each request whose body it has read, and each effect.
type enemy struct {
	mu       sync.Mutex // guards what follows
	rng      *rand.Rand
	requests map[string]int // by wire key
	effects  map[string]int
}

// trick is one way to answer; applied says whether the effect was produced first.
type trick struct {
	applied bool
	text    string
	hang    bool
}

var tricks = []trick{
	{true, ok, false}, {true, ok, false}, {true, reply("200 OK", "Content-Type: text/html\r\n", "<html>"), false},
	{true, "", false}, {false, "", false}, {true, "garbage\r\n\r\n", false}, {true, "HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{", false},
	{true, "HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{", true}, {true, "", true}, {false, "", true},
	{true, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("4000\r\n"+strings.Repeat("x", 0x4000)+"\r\n", 20), false},
	{true, status("500 Internal Server Error"), false}, {false, status("502 Bad Gateway"), false}, {true, status("504 Gateway Timeout"), false},
	{false, status("429 Too Many Requests"), false}, {false, reply("503 Service Unavailable", "Retry-After: 0\r\n", ""), false},
	{false, status("422 Unprocessable Content"), false}, {false, reply("307 Temporary Redirect", "Location: /\r\n", ""), false},
	{true, reply("302 Found", "Location: /\r\n", ""), false}, {true, status("409 Conflict"), false}, {true, "HTTP/1.1 103 Early Hints\r\n\r\n" + ok, false},
	{true, "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<17), false}, {true, reply("200 OK", "Connection: close\r\n", "{}"), false},
}

func (e *enemy) talk(conn net.Conn) {
	for in := bufio.NewReader(conn); ; {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		how := e.choose(req)
		if _, err := io.WriteString(conn, how.text); err != nil {
			return
		}
		if how.hang {
			_, _ = io.Copy(io.Discard, in) // until the other side lets go
			return
		}
		if !strings.HasSuffix(how.text, ok) {
			return // also a kept connection on which all was well
		}
	}
}

func (e *enemy) choose(req *http.Request) trick {
	e.mu.Lock()
	defer e.mu.Unlock()
	if key, asked := strings.CutPrefix(req.URL.Path, "/of/"); asked {
		return e.answer(key)
	}
	key := strings.Trim(req.Header.Get("Idempotency-Key"), `"`)
	how := tricks[e.rng.IntN(len(tricks))]
	e.requests[key]++
	if how.applied {
		e.effects[key] = 1 // it deduplicates
	}
	return how
}

// answer never lies, and often says nothing.
func (e *enemy) answer(key string) trick {
	truth := status("404 Not Found")
	if e.effects[key] > 0 {
		truth = ok
	}
	all := []trick{{text: truth}, {text: truth}, {text: truth}, {text: status("409 Conflict")}, {text: ""}, {text: status("500 x")}, {text: "", hang: true}}
	return all[e.rng.IntN(len(all))]
}

// saboteur is a program that does the same; its files are the witness.
const saboteur = `echo x >>"$0/request.$OUTBOX_KEY"; did() { echo x >"$0/effect.$OUTBOX_KEY"; }
case $(( ($$ + OUTBOX_ATTEMPT) % 12 )) in
0) did; echo '{"id":7}' ;;
1) did; exit 1 ;;
2) exit 75 ;;
3) exit 3 ;;
4) did; kill -KILL $$ ;;
5) did; exec sleep 60 ;;
6) did; setsid sleep 60 & exec sleep 60 ;;
7) echo '{"outcome":"retry"}' ;;
8) did; echo '{"outcome":"rejected' ;;
9) did; exec yes lantern ;;
10) did; exec 0<&-; echo '{"outcome":"applied"}'; exit 9 ;;
11) did; sleep 60 & exit 0 ;;
esac`

const verdict = `[ -e "$0/effect.$OUTBOX_KEY" ] && echo '{"outcome":"applied"}' || echo '{"outcome":"not_applied"}'`

func TestHostileServersAndProgramsAtOnce(t *testing.T) {
	files, goroutines := descriptors(t), runtime.NumGoroutine()
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	peak := uint64(0)
	t.Run("storm", func(t *testing.T) { peak = storm(t, 500) })
	if grown := int64(peak) - int64(before.HeapInuse); grown > 30<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(20 * time.Second); ; {
		if descriptors(t) <= files && runtime.NumGoroutine() <= goroutines {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%d descriptors and %d goroutines are left, before it were %d and %d", descriptors(t), runtime.NumGoroutine(), files, goroutines)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// storm works off operations of six tools, looks at each of them, and returns the
// most memory that was in use.
func storm(t *testing.T, operations int) (peak uint64) {
	e := &enemy{rng: rand.New(rand.NewPCG(17, 4)), requests: map[string]int{}, effects: map[string]int{}}
	address, dir := peer(t, e.talk), t.TempDir()
	b := newBench(t)
	for _, class := range classes {
		b.add("http-"+string(class), class, true, at(address), hurried)
		b.add("exec-"+string(class), class, true, hurried, func(c *config.Tool) {
			program("/bin/sh", "-c", saboteur, dir)(c)
			c.Exec.Env = []config.EnvVar{{Name: "PATH"}}
		})
	}
	for i, c := range b.tools {
		if c.Query == nil {
			continue
		}
		q := *c.Query
		if q.HTTP = (&config.HTTP{URL: "http://" + address + "/of/{key}", Method: http.MethodGet}); c.Exec != nil {
			q.HTTP, q.Exec = nil, &config.Exec{Argv: []string{"/bin/sh", "-c", verdict, dir}}
		}
		b.tools[i].Query = &q
	}
	b.open()
	var refs []operation
	for i := range operations {
		tool := b.tools[i%len(b.tools)]
		a := ledgertest.Accept(t, b.ledger, b.poller.Work().Registry, ledgertest.Request(tool.Name, fmt.Sprint("key-", i)))
		refs = append(refs, operation{a.ID, tool})
	}
	b.run()
	b.await("everything has ended", func() bool {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapInuse)
		return b.live() == 0
	})
	for _, o := range refs {
		b.examine(o, e, dir)
	}
	return peak
}

// hurried has the rounds of an hour in some seconds.
func hurried(c *config.Tool) {
	c.Timeout = 700 * time.Millisecond
	c.Concurrency = 16
	c.Retry = config.Retry{Backoff: "constant", Initial: 20 * time.Millisecond, Max: 20 * time.Millisecond, Jitter: "none", MaxAttempts: 4, MaxQueries: 8}
}

type operation struct {
	id   int64
	tool config.Tool
}

// live counts the entries that the poller still has to do with.
func (b *bench) live() (n int) {
	ledgertest.Read(b.t, b.ledger, func(v *ledger.View) error {
		return v.One(`SELECT count(*) FROM outbox_entry WHERE due_at IS NOT NULL OR state IN ('claimed', 'sending')`).Scan(&n)
	})
	return n
}

// examine holds what the file says of an operation against the witness.
func (b *bench) examine(o operation, e *enemy, dir string) {
	b.t.Helper()
	key := b.wireKey(o.id)
	requests, effects := e.requests[key], e.effects[key]
	if o.tool.Exec != nil {
		requests, effects = lines(filepath.Join(dir, "request."+key)), lines(filepath.Join(dir, "effect."+key))
	}
	r, evidence := b.entry(o.id), b.evidence(o.id)
	sent, unseen, proven := 0, 0, true
	for i, text := range evidence {
		kind, class := word(text, 0), word(text, 1)
		if kind != "outcome" {
			continue
		}
		nothing := class == string(handler.NotSent) || class == string(handler.TryAgain) || class == string(handler.Rejected)
		if class != string(handler.NotSent) {
			sent++
		}
		if code := word(text, 2); code == "no_answer" || code == "timeout" {
			unseen++ // it may have left and not have been read
		}
		if proven = proven && nothing; !nothing && o.tool.Effect == string(entry.Opaque) && i < len(evidence)-1 {
			b.t.Errorf("%s: an opaque operation went on after %s: %v", o.tool.Name, class, evidence)
		}
	}
	if receipt := b.receipt(o.id); strings.HasPrefix(receipt, "fresh") {
		sent++
	}
	if requests > sent || requests < sent-unseen {
		b.t.Errorf("%s: %d requests on the wire, %d recorded: %s, %v", o.tool.Name, requests, sent, r.State, evidence)
	}
	b.supported(o, r, effects, proven, evidence)
}

// supported fails unless the end state follows from what is known.
func (b *bench) supported(o operation, r row, effects int, proven bool, evidence []string) {
	b.t.Helper()
	switch {
	case r.State == entry.Delivered && (effects == 0 || b.receipt(o.id) == ""):
		b.t.Errorf("%s: delivered, %d effects, receipt %q", o.tool.Name, effects, b.receipt(o.id))
	case r.State == entry.Dead && effects > 0:
		b.t.Errorf("%s: dead (%s) with an effect: %v", o.tool.Name, r.Reason, evidence)
	case r.State == entry.Dead && !proven && o.tool.Effect != string(entry.Queryable):
		b.t.Errorf("%s: dead (%s) without proof: %v", o.tool.Name, r.Reason, evidence)
	case r.State == entry.Unknown && (proven || r.Reason == ""):
		b.t.Errorf("%s: unknown (%s) although all is proven: %v", o.tool.Name, r.Reason, evidence)
	case r.State != entry.Delivered && r.State != entry.Dead && r.State != entry.Unknown:
		b.t.Errorf("%s: ended %s", o.tool.Name, r.State)
	}
}

func (b *bench) wireKey(id int64) (key string) {
	b.t.Helper()
	ledgertest.Read(b.t, b.ledger, func(v *ledger.View) error {
		return v.One(`SELECT wire_key FROM outbox_operation WHERE id = ?`, id).Scan(&key)
	})
	return key
}

func word(text string, n int) string { return strings.Fields(text + " - - -")[n] }

// lines of a file; none where there is no file.
func lines(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	return strings.Count(string(text), "\n")
}

// open builds the handlers and the process, without work.
func (b *bench) open() {
	t := b.t
	registry, err := contract.NewRegistry(b.tools)
	if err != nil {
		t.Fatal(err)
	}
	work := &poller.Work{Registry: registry, Handlers: map[string]handler.Pair{}}
	for _, c := range b.tools {
		pair, err := handler.Build(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pair.Close)
		r := &recorder{Handler: pair.Handler, Asker: pair.Asker}
		b.recorders[c.Name] = r
		if pair.Handler = r; pair.Asker != nil {
			pair.Asker = r
		}
		work.Handlers[c.Name] = pair
	}
	b.world = open(t, options{concurrency: 32})
	if err := b.poller.Swap(context.Background(), work); err != nil {
		t.Fatal(err)
	}
}
