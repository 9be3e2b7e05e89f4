package chaos_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/chaos"
)

// transaction is what the application tells of one, in Unix microseconds.
type transaction struct {
	Key    string `json:"key"`
	End    string `json:"end"`
	Before int64  `json:"before"` // its end
	After  int64  `json:"after"`
}

// python skips loudly where there is no python3 with a SQLite that can write the
// file.
func (w *world) python() {
	w.t.Helper()
	out, err := exec.Command("python3", "testdata/app.py", "", "version").Output()
	if err != nil {
		absent(w.t, "python3 with its sqlite3 module is needed")
	}
	version := strings.TrimSpace(string(out))
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	if major != "3" || len(minor) < 2 || len(minor) == 2 && minor < "37" {
		absent(w.t, "python3's SQLite is "+version+", 3.37 is needed")
	}
	w.t.Logf("python3 with SQLite %s", version)
}

// application runs the application to its end and returns what it printed.
func (w *world) application(args ...string) string {
	w.t.Helper()
	var errs strings.Builder
	cmd := exec.CommandContext(w.ctx, "python3", append([]string{"testdata/app.py", w.path("outbox.db")}, args...)...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("application %v: %v\n%s", args, err, errs.String())
	}
	if errs.Len() > 0 {
		w.t.Logf("application %v says:\n%s", args, errs.String())
	}
	return string(out)
}

// TestApplicationCommit: an intent that an application inserts in a transaction
// of its own leaves when that commits, at once, and never when it rolls back.
func TestApplicationCommit(t *testing.T) {
	w := newWorld(t)
	w.python()
	w.configure("worker: {poll_interval: 30s}",
		w.http("ship", "idempotent", chaos.Now, "wire_key: raw"), w.http("ask", "queryable", chaos.Now, "wire_key: raw"))
	r := w.up()
	for _, tool := range []string{"ship", "ask"} {
		done := map[string]transaction{}
		for line := range strings.Lines(w.application("paced", "100", tool)) {
			var tx transaction
			must(t, json.Unmarshal([]byte(line), &tx))
			done[tx.Key] = tx
		}
		var delays, full []time.Duration
		w.until("every committed intent is sent", func() bool {
			return len(w.received(tool)) >= 80
		})
		for _, got := range w.received(tool) {
			tx := done[got.Key]
			if tx.End != "COMMIT" {
				t.Errorf("%s was sent, though its transaction ended with %s", got.Key, tx.End)
			}
			delays = append(delays, time.Duration(got.At-tx.After)*time.Microsecond)
			full = append(full, time.Duration(got.At-tx.Before)*time.Microsecond)
		}
		equal(t, "requests", len(delays), 80)
		t.Logf("%s: from the end of COMMIT to the downstream: %s; from its begin: %s", tool, spread(delays), spread(full))
		if m := median(full); m > 100*time.Millisecond {
			t.Errorf("median %s", m)
		}
	}
	w.down(r)
}

// received is what the witness got at the path of a tool of this test.
func (w *world) received(tool string) []chaos.Record {
	path := map[string]string{"ship": "/idempotent/now", "ask": "/queryable/now"}[tool]
	return slices.DeleteFunc(w.seen(chaos.Asked), func(r chaos.Record) bool { return r.Tool != path })
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func spread(d []time.Duration) string {
	slices.Sort(d)
	return "median " + d[len(d)/2].String() + ", 95 % " + d[len(d)*95/100].String() + ", worst " + d[len(d)-1].String()
}

// TestApplicationDuringDrain: while the daemon drains at full speed, no
// transaction of the application fails as locked.
func TestApplicationDuringDrain(t *testing.T) {
	w := newWorld(t)
	w.python()
	w.configure("worker: {poll_interval: 30s}",
		w.http("ship", "idempotent", chaos.Now, ""), w.shell("never", "opaque", "exit 0", ""))
	w.down(w.up()) // makes the file
	const backlog, own = 12_000, 1000
	w.application("bulk", "12000", "ship")
	r := w.up()
	var out struct{ Locked, Longest, Began, After int64 }
	must(t, json.Unmarshal([]byte(w.application("many", "1000", "ship")), &out))
	sent := w.seen(chaos.Asked)
	during := len(slices.DeleteFunc(slices.Clone(sent), func(r chaos.Record) bool { return r.At < out.Began || r.At > out.After }))
	took := time.Duration(out.After-out.Began) * time.Microsecond
	t.Logf("%d transactions in %s, the longest %s, %d locked; %d requests left meanwhile, %d/s",
		own, took.Round(time.Millisecond), time.Duration(out.Longest)*time.Microsecond, out.Locked, during, int(float64(during)/took.Seconds()))
	equal(t, "transactions that failed as locked", out.Locked, 0)
	if during == 0 || len(sent) >= backlog+own {
		t.Errorf("%d requests left while the application wrote, %d in all: there was no drain beside it", during, len(sent))
	}
	if !full {
		r.Kill()
		w.audit()
		equal(t, "orders", w.count(`SELECT count(*) FROM shop_order`), backlog+own)
		equal(t, "intents", w.count(`SELECT (SELECT count(*) FROM outbox_intake) + (SELECT count(*) FROM outbox_operation)`), backlog+own)
		return
	}
	w.until("everything is delivered", func() bool { return len(w.seen(chaos.Effect)) == backlog+own })
	equal(t, "requests", len(w.seen(chaos.Asked)), backlog+own)
	w.down(r)
}
