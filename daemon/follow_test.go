package daemon_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/entry"
)

const reloadedMessage, keptMessage = "config reloaded", "config not reloaded: the old one stays"

// filed is a daemon whose config is a file, which it follows.
type filed struct {
	*world
	path string
	head string // the sections that never change
}

// fromFile starts one with these tools and whatever else.
func fromFile(t *testing.T, rest string) *filed {
	t.Helper()
	dir := t.TempDir()
	f := &filed{path: filepath.Join(dir, "outboxd.yaml")}
	f.head = fmt.Sprintf("database: {path: %[1]s/outbox.db}\nlisten: {socket: %[1]s/sock}\noperators: {uids: [%[2]d]}\n", dir, os.Getuid())
	must(t, os.WriteFile(f.path, []byte(f.head+rest), 0o600))
	load := func() (*config.Config, error) { return config.Load(f.path, nil) }
	cfg, err := load()
	must(t, err)
	f.world = run(t, cfg, daemon.Options{
		Load: load, File: f.path,
		Watch: config.WatchOptions{Rest: 20 * time.Millisecond, Long: 100 * time.Millisecond, Check: time.Hour},
	}).ready()
	return f
}

// edit puts a text in the place of the file, as the n-th way does.
func (f *filed) edit(n int, text string) {
	f.Helper()
	text = f.head + text
	switch n % 4 {
	case 0:
		must(f.T, os.WriteFile(f.path, []byte(text), 0o600))
	case 1:
		must(f.T, os.Remove(f.path))
		must(f.T, os.WriteFile(f.path, []byte(text), 0o600))
	case 2:
		must(f.T, os.WriteFile(f.path+".new", []byte(text), 0o600))
		must(f.T, os.Rename(f.path+".new", f.path))
	case 3:
		versions, err := os.MkdirTemp(filepath.Dir(f.path), "v")
		must(f.T, err)
		must(f.T, os.WriteFile(filepath.Join(versions, "c.yaml"), []byte(text), 0o600))
		must(f.T, os.Symlink(filepath.Join(versions, "c.yaml"), f.path+".new"))
		must(f.T, os.Rename(f.path+".new", f.path))
	}
}

// count is how often the daemon has logged a message.
func (f *filed) count(message string) int { return f.logs.FilterMessage(message).Len() }

func oneTool(url string) string {
	return fmt.Sprintf("tools:\n  - {name: call, effect: idempotent, http: {url: %q}}\n", url)
}

func TestAFileThatIsNotWholeChangesNothingAndIsToldOnce(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	two := oneTool(server.URL) + fmt.Sprintf("  - {name: more, effect: idempotent, http: {url: %q}}\n", server.URL)
	for name, tt := range map[string]struct{ broken, want string }{
		"empty":                {"", "found no settings"},
		"wrong":                {"worker: {concurrency: many}\n" + two, `worker.concurrency: found "many"`},
		"cut in a line":        {strings.TrimSuffix(two, "}\n"), "YAML syntax error"},
		"cut after a tool":     {oneTool(server.URL), `tools: found a file without the tool "more"`},
		"cut in the last line": {two + "retry: {max_attempts: 1}", "found a last line that does not end, unlike before"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fromFile(t, two)
			head := f.head
			if name == "empty" {
				f.head = ""
			}
			f.edit(2, tt.broken)
			told := f.says(keptMessage, 1)
			if got := fmt.Sprint(told[0].ContextMap()["error"]); !strings.Contains(got, tt.want) {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
			if _, err := f.client.Submit(t.Context(), request("more", "order-17"), patience); err != nil {
				t.Errorf("submit with the old config: %v", err)
			}
			f.head = head
			f.edit(0, two+"retry: {max_attempts: 2}\n")
			f.says(reloadedMessage, 1)
			must(t, f.end())
			if n, m := f.count(keptMessage), f.count(reloadedMessage); n != 1 || m != 1 {
				t.Errorf("told %d times that it is broken and %d times that it is reloaded, want once each", n, m)
			}
		})
	}
}

// A file that is half written for a while, as by a slow copy, is never taken.
func TestAFileThatGrowsIsTakenWhenItIsWhole(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	f := fromFile(t, oneTool(server.URL))
	tick := time.NewTicker(30 * time.Millisecond) // longer than a rest
	defer tick.Stop()
	for round := range 3 {
		file, err := os.Create(f.path)
		must(t, err)
		for _, part := range []string{
			"", f.head[:len(f.head)/2], f.head[len(f.head)/2:], oneTool(server.URL), "retry:\n", "  max_attempts: 1", fmt.Sprintf("%d\n", 5+round),
		} {
			<-tick.C
			_, err := file.WriteString(part)
			must(t, err)
		}
		must(t, file.Close())
		f.says(reloadedMessage, round+1)
	}
	must(t, f.end())
	if n, m := f.count(keptMessage), f.count(reloadedMessage); n != 0 || m != 3 {
		t.Errorf("told %d times that it is broken and %d times that it is reloaded, want 0 and 3", n, m)
	}
}

// Every version says its number in the URL, in a header and in the method's
// alternation: a request of a mixture would show.
func TestAHundredEditsUnderLoadTakeEffectOnceEach(t *testing.T) {
	var mu sync.Mutex // guards mixed and seen
	var mixed []string
	seen := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		version, method := strings.TrimPrefix(r.URL.Path, "/v"), "POST"
		if strings.HasSuffix(version, "1") {
			method = "PUT"
		}
		mu.Lock()
		defer mu.Unlock()
		seen[version] = true
		if r.Header.Get("X-Version") != version || r.Method != method {
			mixed = append(mixed, fmt.Sprintf("%s %s with header %s", r.Method, r.URL.Path, r.Header.Get("X-Version")))
		}
	}))
	defer server.Close()
	version := func(n int) string {
		method := "POST"
		if n%10 == 1 {
			method = "PUT"
		}
		return fmt.Sprintf("tools:\n  - {name: call, effect: idempotent, concurrency: 8, revisions: {handler: same}, "+
			"http: {method: %s, url: %q, headers: [{name: X-Version, value: %q}]}}\n", method, fmt.Sprintf("%s/v%d", server.URL, n), fmt.Sprint(n))
	}
	f := fromFile(t, version(1000))
	submitted := submitAlong(t, f)
	const edits = 100
	for n := range edits {
		f.edit(n, version(1001+n))
		f.says(reloadedMessage, n+1)
	}
	accepted := submitted()
	f.edit(0, "# why\n"+version(1000+edits)) // a comment: nothing to say
	<-time.After(200 * time.Millisecond)     // ten rests
	must(t, f.end())
	if n, m := f.count(reloadedMessage), f.count(keptMessage); n != edits || m != 0 {
		t.Errorf("reloaded %d times and refused %d times, want %d and never", n, m, edits)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(mixed) > 0 {
		t.Errorf("%d requests of a mixture, the first: %s", len(mixed), mixed[0])
	}
	if accepted < edits || len(seen) < edits/4 {
		t.Errorf("%d operations by %d versions: too little load to show anything", accepted, len(seen))
	}
}

// A changed backoff reaches what waits already, within a second of its reload.
func TestAChangedBackoffReachesWaitingEntriesWithinASecond(t *testing.T) {
	var up atomic.Bool
	var first atomic.Int64 // when the first attempt came after that, in Unix ms
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			rw.WriteHeader(http.StatusTooManyRequests)
			return
		}
		first.CompareAndSwap(0, time.Now().UnixMilli())
	}))
	defer server.Close()
	const entries = 50
	wait := func(initial string) string {
		return "retry: {backoff: constant, initial: " + initial + ", max: 1h}\n" + oneTool(server.URL)
	}
	f := fromFile(t, wait("1h"))
	for n := range entries {
		_, err := f.client.Submit(t.Context(), request("call", fmt.Sprintf("order-%d", n)), 0)
		must(t, err)
	}
	delivered := func() int {
		list, err := f.client.List(t.Context(), api.Filter{States: []entry.State{entry.Delivered}, Limit: entries})
		must(t, err)
		return len(list.Operations)
	}
	eventually(t, "every first attempt failed", func() bool {
		r, err := f.client.List(t.Context(), api.Filter{States: []entry.State{entry.Pending}, Limit: entries})
		must(t, err)
		for _, one := range r.Operations {
			if one.Attempts == 0 {
				return false
			}
		}
		return len(r.Operations) == entries
	})
	up.Store(true)
	f.edit(0, wait("100ms"))
	f.says(reloadedMessage, 1)
	reloaded := f.logs.FilterMessage(reloadedMessage).All()[0].Time
	eventually(t, "every entry is delivered", func() bool { return delivered() == entries })
	took, all := time.UnixMilli(first.Load()).Sub(reloaded), time.Since(reloaded)
	t.Logf("of %d entries that would have waited an hour the first is tried %s after the reload, all are delivered after %s", entries, took, all)
	if took > time.Second { // all of them take as long as this machine needs for so many requests
		t.Errorf("that is more than a second")
	}
	must(t, f.end())
}

// submitAlong submits operations until the returned function is called, which
// says how many were accepted.
func submitAlong(t *testing.T, f *filed) func() int {
	ctx, stop := context.WithCancel(t.Context())
	n, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ; ctx.Err() == nil; n++ {
			if _, err := f.client.Submit(t.Context(), request("call", fmt.Sprintf("order-%d", n)), 0); err != nil {
				t.Errorf("submit: %v", err)
				return
			}
			<-tick.C
		}
	}()
	return func() int { stop(); <-done; return n }
}
