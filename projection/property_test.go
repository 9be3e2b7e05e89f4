package projection_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
	"github.com/outboxd/outboxd/projection"
)

// mutant says that this run is one of the tests against a source that was changed:
// they do not start another one.
const mutant = "OUTBOXD_UNGUARDED"

// The unguarded behaviour exists only here, and the schedules find it.
func TestTheSchedulesKillTheUnguardedMutant(t *testing.T) {
	if os.Getenv(mutant) != "" || testing.Short() {
		t.Skip("NOT TESTED: the mutant")
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	content, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(here, "decide.go"): filepath.Join(here, "testdata", "unguarded.go.txt")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, content, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		c := exec.CommandContext(t.Context(), "go", append([]string{"test", "-count=1", "-run", "TestTheSchedulesOfALateResult"}, args...)...)
		c.Env = append(os.Environ(), mutant+"=1")
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := run("-overlay", overlay, ".")
	if err == nil || !strings.Contains(out, "interrupt_first") || strings.Contains(out, "project_first (") {
		t.Errorf("the mutant lives, or dies of something else: %v\n%s", err, out)
	}
}

func TestAnEventIsNeitherForgedNorSubstituted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.session("s")
		w.session("other")
		w.completed(w.begun(request("job-1", "s", 1)), `{"order":17}`)
		var c handler.Call
		ledgertest.Read(t, w.l, func(v *ledger.View) error {
			return v.One(`SELECT status_ref, tenant_id, subject_id, idempotency_key, arguments FROM outbox_operation WHERE tool_name = ?`,
				projection.ToolName).Scan(&c.StatusRef, &c.Tenant, &c.Subject, &c.Key, &c.Arguments)
		})
		try := func(change func(*handler.Call)) handler.Outcome {
			var out handler.Outcome
			asked := c
			change(&asked)
			w.write(func(tx *ledger.Tx) error { out = projection.Project(tx, asked); return nil })
			return out
		}
		replace := func(from, to string) func(*handler.Call) {
			return func(c *handler.Call) {
				if !bytes.Contains(c.Arguments, []byte(from)) {
					t.Fatalf("%s has no %s", c.Arguments, from)
				}
				c.Arguments = bytes.ReplaceAll(c.Arguments, []byte(from), []byte(to))
			}
		}
		forged := map[string]func(*handler.Call){
			"state":   replace(`"state":"delivered"`, `"state":"dead"`),
			"session": replace(`"session":"s"`, `"session":"other"`),
			"turn":    replace(`"turn":1`, `"turn":2`),
			"result": func(c *handler.Call) {
				i := bytes.Index(c.Arguments, []byte(`sha256":"`)) + 9
				c.Arguments = bytes.Clone(c.Arguments)
				copy(c.Arguments[i:], "0000000000000000")
			},
			"tenant":        func(c *handler.Call) { c.Tenant = "globex" },
			"other key":     func(c *handler.Call) { c.Key += "x" },
			"no such child": func(c *handler.Call) { c.StatusRef = strings.Repeat("0", 36) },
		}
		for name, change := range forged {
			if out := try(change); out.Observed != handler.Rejected {
				t.Errorf("%s: got %s %s, want it refused", name, out.Observed, out.Code)
			}
		}
		w.want("s", "[] []")
		first := try(func(*handler.Call) {})
		again := try(func(*handler.Call) {})
		if first.Observed != handler.Succeeded || string(again.Result) != string(first.Result) {
			t.Errorf("got %s and again %s %s, want the same decision", first.Result, again.Observed, again.Result)
		}
		w.want("s", "[1] [written]")
		for name, change := range forged {
			if out := try(change); out.Observed != handler.Rejected {
				t.Errorf("%s, after the decision: got %s %s, want it refused", name, out.Observed, out.Code)
			}
		}
		var sum []byte
		w.write(func(tx *ledger.Tx) error { return tx.One(`SELECT content_sha256 FROM outbox_history`).Scan(&sum) })
		decided := func(content []byte) {
			w.write(func(tx *ledger.Tx) error {
				_, err := tx.Exec(`UPDATE outbox_history SET content_sha256 = ?`, content)
				return err
			})
		}
		decided(make([]byte, 32)) // about another content
		defer decided(sum)
		if out := try(func(*handler.Call) {}); out.Observed != handler.Rejected || out.Code != "event_substituted" {
			t.Errorf("another content under the same id: got %s %s", out.Observed, out.Code)
		}
		w.want("s", "[1] [written]")
	})
}

func TestNoNameAndNoTurnComesTwice(t *testing.T) {
	w := newWorld(t)
	w.session("s")
	again := func() error {
		return w.l.Write(t.Context(), func(tx *ledger.Tx) error { _, err := projection.Open(tx, "acme", "shop", "s"); return err })
	}
	if err := again(); !errors.Is(err, projection.ErrExists) {
		t.Errorf("got %v, want %v", err, projection.ErrExists)
	}
	for range 5 {
		w.stop("s")
		w.interrupt("s")
	}
	w.reopen()
	w.interrupt("s")
	if n := w.count(`SELECT count(*) * 100 + max(turn) FROM outbox_turn`); n != 707 {
		t.Errorf("got %d, want 7 turns up to 7", n)
	}
	err := w.l.Write(t.Context(), func(tx *ledger.Tx) error {
		s, err := projection.Find(tx, "acme", "shop", "s")
		if err != nil {
			return err
		}
		_, err = projection.Advance(tx, s, 6, projection.Interrupted)
		return err
	})
	if moved, ok := errors.AsType[*projection.MovedError](err); !ok || moved.Current != 7 || !moved.Open {
		t.Errorf("an interrupt of turn 6: got %v, want it told that 7 is current", err)
	}
	if err := again(); !errors.Is(err, projection.ErrExists) {
		t.Errorf("got %v, want %v", err, projection.ErrExists)
	}
}

func TestSessionsOfOneNameAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.session("s")
		w.session("s", "globex")
		w.completed(w.begun(request("job-1", "s", 1)), `1`)
		w.interrupt("s")
		w.project()
		if n := w.count(`SELECT count(*) FROM outbox_history AS h JOIN outbox_session AS s ON s.id = h.session WHERE s.tenant_id = 'globex'`); n != 0 {
			t.Errorf("got %d rows in the other tenant's session", n)
		}
		if n := w.count(`SELECT turn FROM outbox_session WHERE tenant_id = 'globex'`); n != 1 {
			t.Errorf("the other tenant's session is at turn %d", n)
		}
	})
}

// boundary is the last row of the history when a turn ended.
type boundary struct{ turn, row int64 }

// 8 who interrupt and stop, 8 whose jobs come to an end, and the consumer of
// projections, all at once. The model knows the boundaries of the turns from the
// transactions that moved them, and says of each row where it had to go.
func TestInterruptersAndWorkersAgreeWithAModel(t *testing.T) {
	const each = 40
	w := newWorld(t)
	w.session("s")
	stop := w.run()
	var mu sync.Mutex // guards ends
	ends := map[int64]int64{}
	move := func(stops bool) error {
		var b boundary
		var closed bool
		err := w.l.Write(context.Background(), func(tx *ledger.Tx) error {
			s, err := projection.Find(tx, "acme", "shop", "s")
			if err != nil {
				return err
			}
			if err := tx.One(`SELECT COALESCE(max(id), 0) FROM outbox_history`).Scan(&b.row); err != nil {
				return err
			}
			b.turn, closed = s.Turn, s.Open
			if stops {
				_, err = projection.Stop(tx, s, 0)
				return err
			}
			_, err = projection.Advance(tx, s, 0, projection.Interrupted)
			return err
		})
		mu.Lock()
		defer mu.Unlock()
		if closed && err == nil {
			ends[b.turn] = b.row
		}
		return err
	}
	work := func(key string) error {
		var turn int64
		if err := w.l.Read(context.Background(), func(v *ledger.View) error {
			s, err := projection.Find(v, "acme", "shop", "s")
			turn = s.Turn
			return err
		}); err != nil {
			return err
		}
		w.completed(w.begun(request(key, "s", turn)), `1`)
		return nil
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range each {
				if err := move(n%4 == i%4); err != nil {
					t.Errorf("interrupt: %v", err)
				}
			}
		})
		all.Go(func() {
			for n := range each {
				if err := work(fmt.Sprintf("job-%d-%d", i, n)); err != nil {
					t.Errorf("work: %v", err)
				}
			}
		})
	}
	all.Wait()
	w.drained(8 * each)
	stop()
	written, aside := 0, 0
	ledgertest.Read(t, w.l, func(v *ledger.View) error {
		return v.Each(func(r *ledger.Row) error {
			var id, source, target int64
			err := r.Scan(&id, &source, &target)
			last, over := ends[source]
			begin := int64(0)
			if source > 1 {
				begin = ends[source-1]
			}
			want := int64(0)
			if id > begin && (!over || id <= last) {
				want = source
			}
			if target != want {
				t.Errorf("row %d of turn %d went to %d, want %d: the turn lasted from row %d to %d", id, source, target, want, begin, last)
			}
			if target != 0 {
				written++
			} else {
				aside++
			}
			return err
		}, `SELECT id, source_turn, COALESCE(target_turn, 0) FROM outbox_history ORDER BY id`)
	})
	if written+aside != 8*each || aside == 0 {
		t.Errorf("got %d written and %d set aside, want %d and some of them set aside", written, aside, 8*each)
	}
}
