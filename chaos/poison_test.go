package chaos_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/chaos"
)

// TestPoison: one operation kills the daemon whenever it is attempted. A
// supervisor starts it again and again; the poison ends by itself, and those
// beside it are done.
func TestPoison(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	script := `read -r line; case "$line" in *bad-1*) kill -9 $PPID; sleep 5;; esac; ` + appendKey
	w.configure("retry: {initial: 10ms, max: 100ms}",
		w.shell("idem", "idempotent", script, ""), w.shell("opaq", "opaque", script, ""))
	r := w.up()
	refs := map[string]string{}
	for i := range 21 {
		key := fmt.Sprint("good-", i)
		if i == 10 {
			key = "bad-1"
		}
		in := intent{tool: "idem", key: key, arguments: "{}"}
		for in.ref == "" {
			if !r.Alive() {
				r = w.revive()
			}
			if a, err := w.client.Submit(w.ctx, body("idem", key, "{}"), 0); err == nil {
				in.ref = a.StatusRef
			}
		}
		refs[key] = in.ref
	}
	for end := time.Now().Add(patience); ; {
		a, err := w.client.Status(w.ctx, refs["bad-1"], 100*time.Millisecond)
		if err == nil && a.Status == "unknown" {
			break
		}
		if !r.Alive() {
			r = w.revive()
		}
		if time.Now().After(end) {
			t.Fatalf("the poison goes on: %+v, %v", a, err)
		}
	}
	w.wantStatus("the poison", w.settled(refs["bad-1"]), "unknown", "crash_loop")
	text, err := os.ReadFile(w.daemon.Log)
	must(t, err)
	deaths := strings.Count(string(text), `"database opened"`) - 1
	t.Logf("%d deaths", deaths)
	if deaths < 3 || deaths > 5 {
		t.Errorf("%d deaths, want 3 to 5", deaths)
	}
	delete(refs, "bad-1")
	for key, ref := range refs {
		w.wantStatus(key, w.settled(ref), "succeeded", "")
	}
	lines := w.lines()
	slices.Sort(lines)
	equal(t, "good ones done", len(slices.Compact(lines)), 20)
	w.opaquePoison(r)
}

// opaquePoison: where the effect may not be repeated, the first death is the
// last one.
func (w *world) opaquePoison(r *chaos.Running) {
	w.t.Helper()
	a, err := w.client.Submit(w.ctx, body("opaq", "bad-1", "{}"), 0)
	if err != nil && !strings.Contains(err.Error(), "EOF") && !strings.Contains(err.Error(), "reset") {
		w.t.Fatal(err)
	}
	w.exit(r.Process)
	r = w.up()
	if a.StatusRef == "" {
		a = w.submit("opaq", "bad-1")
	}
	w.wantStatus("opaque poison", w.settled(a.StatusRef), "unknown", "lapsed")
	w.down(r)
}

// revive starts the daemon again, as a supervisor does, also when the poison ends
// it before it is seen to be ready.
func (w *world) revive() *chaos.Running {
	w.t.Helper()
	for {
		r, err := w.daemon.Up(w.ctx)
		if r != nil {
			w.t.Cleanup(r.Kill)
		}
		if err == nil {
			return r
		}
		if !errors.Is(err, chaos.ErrEnded) {
			w.t.Fatalf("daemon does not come up: %v", err)
		}
	}
}
