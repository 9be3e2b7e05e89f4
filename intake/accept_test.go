package intake_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

func submit(l *ledger.Ledger, reg *contract.Registry, r intake.Request) (a intake.Accepted, err error) {
	p, err := intake.Prepare(reg, r)
	if err != nil {
		return a, err
	}
	err = l.Write(context.Background(), func(tx *ledger.Tx) error {
		a, err = p.Accept(tx)
		return err
	})
	return a, err
}

func load(t *testing.T, l *ledger.Ledger, id int64) *contract.Operation {
	t.Helper()
	var op *contract.Operation
	ledgertest.Read(t, l, func(v *ledger.View) error {
		ops, err := intake.Load(v, []int64{id, id + 1_000_000})
		op = ops[id]
		return err
	})
	if op == nil {
		t.Fatalf("operation %d does not exist", id)
	}
	return op
}

func count(t *testing.T, l *ledger.Ledger, query string, args ...any) int {
	t.Helper()
	var n int
	ledgertest.Read(t, l, func(v *ledger.View) error { return v.One(query, args...).Scan(&n) })
	return n
}

// full is a request in which every field says something.
func full(key string) intake.Request {
	return intake.Request{
		Scope:     contract.Scope{Tenant: "acme", Subject: "shop", Tool: "lamp", Key: key},
		Arguments: []byte(`{ "on": true, "lamp": "hall" }`),
		Origin:    contract.Origin{Provider: "p", APIFamily: "f", AdapterRevision: "a1", ResponseID: "r1", CallID: "c1"},
		NotBefore: time.Date(2031, 5, 17, 8, 30, 0, 250_000_000, time.UTC),
		Session:   "s1", Turn: 4,
		Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
}

func TestAcceptStoresEverything(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	ledgertest.Session(t, l, "s1", 9)
	before := time.Now()
	a := ledgertest.Accept(t, l, reg, full("kite-204"))
	if !a.New || a.State != entry.Pending {
		t.Errorf("got %+v, want a new pending operation", a)
	}
	tool, _ := reg.Lookup("lamp")
	r := full("kite-204")
	canonical := []byte(`{"lamp":"hall","on":true}`)
	want := &contract.Operation{
		ID: a.ID, StatusRef: a.StatusRef, Scope: r.Scope, Arguments: canonical,
		RequestSum: contract.RequestDigest(r.Scope, canonical, tool.Revisions),
		Effect:     entry.Idempotent, WireKey: contract.WireKey(contract.WireScope, r.Scope), Revisions: tool.Revisions, Original: tool.Revisions,
		Origin: r.Origin, NotBefore: r.NotBefore, Session: "s1", Turn: 4, Trace: r.Trace,
	}
	got := load(t, l, a.ID)
	if at := got.AcceptedAt; at.Before(before.Truncate(time.Millisecond)) || at.After(time.Now()) {
		t.Errorf("got accepted_at %v, want now", at)
	}
	want.AcceptedAt = got.AcceptedAt
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stored operation (-want +got):\n%s", diff)
	}
	if ref, err := uuid.Parse(a.StatusRef); err != nil || ref.Version() != 7 {
		t.Errorf("got status_ref %q, want a UUIDv7", a.StatusRef)
	}
	ledgertest.Read(t, l, func(v *ledger.View) error {
		for name, find := range map[string]func() (*contract.Operation, error){
			"ByRef":   func() (*contract.Operation, error) { return intake.ByRef(v, a.StatusRef) },
			"ByScope": func() (*contract.Operation, error) { return intake.ByScope(v, r.Scope) },
		} {
			if op, err := find(); err != nil || op.ID != a.ID {
				t.Errorf("%s: got %v, %v, want operation %d", name, op, err, a.ID)
			}
		}
		if _, err := intake.ByRef(v, "nope"); !errors.Is(err, intake.ErrNotFound) {
			t.Errorf("ByRef of nothing: got error %v, want ErrNotFound", err)
		}
		return nil
	})
}

// Each field that a replay compares, changed alone.
func TestRepetitionOrConflict(t *testing.T) {
	l := ledgertest.Open(t)
	ledgertest.Session(t, l, "s1", 9)
	declared := func(r config.Revisions) *contract.Registry {
		tool := ledgertest.Tool("lamp", entry.Idempotent)
		tool.Revisions = r
		return ledgertest.Registry(t, tool)
	}
	base := config.Revisions{Input: "i1", Output: "o1", Effect: "e1", Handler: "h1", Producer: "p1", Policy: "y1"}
	revised := func(change func(*config.Revisions)) *contract.Registry {
		r := base
		change(&r)
		return declared(r)
	}
	for _, c := range []struct {
		name   string
		reg    *contract.Registry
		change func(*intake.Request)
		want   []string // fields of the conflict; nil: a repetition
	}{
		{"the same", nil, func(*intake.Request) {}, nil},
		{"other order and spaces", nil, func(r *intake.Request) { r.Arguments = []byte("{\"lamp\":\"hall\",\n\"on\":true}") }, nil},
		{"another trace", nil, func(r *intake.Request) { r.Trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-00" }, nil},
		{"no trace", nil, func(r *intake.Request) { r.Trace = "" }, nil},
		{"another zone", nil, func(r *intake.Request) { r.NotBefore = r.NotBefore.In(time.FixedZone("", 5*3600+45*60)) }, nil},
		{"arguments", nil, func(r *intake.Request) { r.Arguments = []byte(`{"lamp":"hall","on":false}`) }, []string{"arguments"}},
		{"input", revised(func(r *config.Revisions) { r.Input = "i2" }), nil, []string{"input_revision"}},
		{"output", revised(func(r *config.Revisions) { r.Output = "o2" }), nil, []string{"output_revision"}},
		{"effect", revised(func(r *config.Revisions) { r.Effect = "e2" }), nil, []string{"effect_revision"}},
		{"handler", revised(func(r *config.Revisions) { r.Handler = "h2" }), nil, []string{"handler_revision"}},
		{"producer", revised(func(r *config.Revisions) { r.Producer = "p2" }), nil, []string{"producer_revision"}},
		{"policy", revised(func(r *config.Revisions) { r.Policy = "y2" }), nil, []string{"policy_revision"}},
		{"provider", nil, func(r *intake.Request) { r.Origin.Provider = "q" }, []string{"provider"}},
		{"no provider", nil, func(r *intake.Request) { r.Origin.Provider = "" }, []string{"provider"}},
		{"API family", nil, func(r *intake.Request) { r.Origin.APIFamily = "g" }, []string{"api_family"}},
		{"adapter", nil, func(r *intake.Request) { r.Origin.AdapterRevision = "a2" }, []string{"adapter_revision"}},
		{"response", nil, func(r *intake.Request) { r.Origin.ResponseID = "r2" }, []string{"response_id"}},
		{"call", nil, func(r *intake.Request) { r.Origin.CallID = "c2" }, []string{"call_id"}},
		{"not before", nil, func(r *intake.Request) { r.NotBefore = r.NotBefore.Add(time.Millisecond) }, []string{"not_before"}},
		{"at once", nil, func(r *intake.Request) { r.NotBefore = time.Time{} }, []string{"not_before"}},
		{"session", nil, func(r *intake.Request) { r.Session = "s2" }, []string{"session"}},
		{"turn", nil, func(r *intake.Request) { r.Turn = 5 }, []string{"turn"}},
		{"neither session nor turn", nil, func(r *intake.Request) { r.Session, r.Turn = "", 0 }, []string{"session", "turn"}},
		{"two at once", nil, func(r *intake.Request) { r.Arguments, r.Turn = []byte("1"), 9 }, []string{"arguments", "turn"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := ledgertest.Accept(t, l, declared(base), full(c.name))
			r := full(c.name)
			if c.change != nil {
				c.change(&r)
			}
			reg := c.reg
			if reg == nil {
				reg = declared(base)
			}
			again, err := submit(l, reg, r)
			var conflict *intake.Conflict
			if errors.As(err, &conflict) != (c.want != nil) || c.want == nil && err != nil {
				t.Fatalf("got error %v, want a conflict in %v", err, c.want)
			}
			if c.want == nil {
				first.New = false
				if again != first {
					t.Errorf("got %+v, want the first one's answer %+v", again, first)
				}
			} else if !slices.Equal(conflict.Fields, c.want) {
				t.Errorf("got conflict in %v, want %v", conflict.Fields, c.want)
			}
			if n := count(t, l, `SELECT count(*) FROM outbox_operation WHERE idempotency_key = ?`, c.name); n != 1 {
				t.Errorf("got %d operations, want 1", n)
			}
		})
	}
}

// The stored row is the authority: one that was altered is no replay.
func TestAlteredDigestIsAConflict(t *testing.T) {
	l, err := ledger.Open(context.Background(), filepath.Join(t.TempDir(), "outbox.db"), ledger.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ledgertest.Session(t, l, "s1", 9)
	ledgertest.Accept(t, l, registry(t), full("k"))
	ledgertest.Write(t, l, func(tx *ledger.Tx) error {
		_, err := tx.Exec(`UPDATE outbox_operation SET request_sha256 = zeroblob(32)`)
		return err
	})
	var conflict *intake.Conflict
	if _, err := submit(l, registry(t), full("k")); !errors.As(err, &conflict) || !slices.Equal(conflict.Fields, []string{"request_sha256"}) {
		t.Errorf("got error %v, want a conflict in request_sha256", err)
	}
	ledgertest.Write(t, l, func(tx *ledger.Tx) error {
		_, err := tx.Exec(`DELETE FROM outbox_entry`)
		return err
	})
}

func TestRepetitionAnswersWithThePresentState(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	a := ledgertest.Accept(t, l, reg, ledgertest.Request("lamp", "k"))
	ledgertest.Write(t, l, func(tx *ledger.Tx) error {
		_, err := entry.Withdraw(tx, a.ID)
		return err
	})
	if got := ledgertest.Accept(t, l, reg, ledgertest.Request("lamp", "k")); got.State != entry.Discarded || got.ID != a.ID {
		t.Errorf("got %+v, want operation %d in state discarded", got, a.ID)
	}
}

func TestParallelAcceptsOfOneKeyMakeOneOperation(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	const callers = 50
	got, errs := make([]intake.Accepted, callers), make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { got[i], errs[i] = submit(l, reg, ledgertest.Request("lamp", "kite-204")) })
	}
	wg.Wait()
	fresh := 0
	for i := range callers {
		if errs[i] != nil || got[i].StatusRef != got[0].StatusRef {
			t.Errorf("caller %d: got %+v, %v, want operation %s", i, got[i], errs[i], got[0].StatusRef)
		}
		if got[i].New {
			fresh++
		}
	}
	if n := count(t, l, `SELECT count(*) FROM outbox_operation`); n != 1 || fresh != 1 {
		t.Errorf("got %d operations and %d new answers, want 1 and 1", n, fresh)
	}
}

func TestKeysAreBytes(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	keys := []string{
		"007", "7", "1e3", "1000", "0x10", "1.0", "null", "''",
		"caf\u00e9-3", "cafe\u0301-3", "\u0430", "a", "Crate-17", "crate-17", "a b", "kite🪁",
	}
	for _, key := range keys {
		a := ledgertest.Accept(t, l, reg, ledgertest.Request("lamp", key))
		if !a.New {
			t.Errorf("key %q: got a repetition, want a new operation", key)
		}
		if op := load(t, l, a.ID); op.Scope.Key != key {
			t.Errorf("got key %q back, want %q", op.Scope.Key, key)
		}
	}
	if n := count(t, l, `SELECT count(DISTINCT wire_key) FROM outbox_operation`); n != len(keys) {
		t.Errorf("got %d wire keys, want %d", n, len(keys))
	}
}

func TestScopeSeparates(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	for _, change := range []func(*intake.Request){
		func(*intake.Request) {},
		func(r *intake.Request) { r.Scope.Tenant = "other" },
		func(r *intake.Request) { r.Scope.Subject = "other" },
		func(r *intake.Request) { r.Scope.Tool = "door" },
	} {
		if a := ledgertest.Accept(t, l, reg, lamp("order-17", change)); !a.New {
			t.Errorf("got a repetition of %s, want a new operation", a.StatusRef)
		}
	}
}

func TestCanonicalFormIsOneForAllOrders(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	for i, c := range []struct{ in, want string }{
		{"{\"\ufb33\":1,\"\U0001f600\":2}", "{\"\U0001f600\":2,\"\ufb33\":1}"},
		{"{\"a\":\"<&>\u2028\"}", "{\"a\":\"<&>\u2028\"}"},
		{`{"a":1.50,"b":1E2}`, `{"a":1.5,"b":100}`},
		{strings.Repeat("[", 32) + strings.Repeat("]", 32), strings.Repeat("[", 32) + strings.Repeat("]", 32)},
	} {
		a := ledgertest.Accept(t, l, reg, lamp(fmt.Sprint(i), func(r *intake.Request) { r.Arguments = []byte(c.in) }))
		if got := load(t, l, a.ID).Arguments; string(got) != c.want {
			t.Errorf("%s: got %s, want %s", c.in, got, c.want)
		}
	}
}

// Instants are integers: no zone and no fraction changes the order.
func TestDueInRealOrder(t *testing.T) {
	second := time.Date(2031, 1, 1, 0, 0, 7, 0, time.UTC)
	l, reg := ledgertest.Open(t), registry(t)
	zones := []*time.Location{time.UTC, time.FixedZone("Kathmandu", 20700), time.FixedZone("St_Johns", -12600)}
	for i, ns := range []int{900_000_000, 500_000_010, 0, 500_000_000} {
		at := second.Add(time.Duration(ns)).In(zones[i%len(zones)])
		ledgertest.Accept(t, l, reg, lamp(fmt.Sprint(ns), func(r *intake.Request) { r.NotBefore = at }))
	}
	var order []string
	ledgertest.Read(t, l, func(v *ledger.View) error {
		return v.Each(func(r *ledger.Row) error {
			var key string
			var due time.Time
			if err := r.Scan(&key, &due); err != nil {
				return err
			}
			order = append(order, key+" "+due.Format(".000"))
			return nil
		}, `SELECT idempotency_key, due_at FROM outbox_entry JOIN outbox_operation ON id = operation_id ORDER BY due_at`)
	})
	if want := []string{"0 .000", "500000000 .500", "500000010 .501", "900000000 .900"}; !slices.Equal(order, want) {
		t.Errorf("got %q, want %q: never early", order, want)
	}
}

func TestDueNowUnlessLater(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	l := ledgertest.Open(t, ledger.Options{Now: func() time.Time { return now }})
	reg := registry(t)
	for key, c := range map[string]struct{ notBefore, want time.Time }{
		"none":  {time.Time{}, now},
		"past":  {now.Add(-time.Hour), now},
		"later": {now.Add(time.Hour), now.Add(time.Hour)},
		"epoch": {time.Unix(0, 0), now},
		"last":  {time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999_000_000, time.UTC)},
	} {
		a := ledgertest.Accept(t, l, reg, lamp(key, func(r *intake.Request) { r.NotBefore = c.notBefore }))
		ledgertest.Read(t, l, func(v *ledger.View) error {
			d, err := entry.Get(v, a.ID)
			if err != nil || !d.DueAt.Equal(c.want) || !d.RoundAt.Equal(c.want) {
				t.Errorf("%s: got due %v, round %v, %v, want %v", key, d.DueAt, d.RoundAt, err, c.want)
			}
			return nil
		})
		if got := load(t, l, a.ID).NotBefore; !got.Equal(c.notBefore) {
			t.Errorf("%s: got not_before %v, want %v", key, got, c.notBefore)
		}
	}
}

func TestRoundBeginsWithWhatTheToolWasExcused(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	l, reg := ledgertest.Open(t, ledger.Options{Now: func() time.Time { return now }}), registry(t)
	ledgertest.Write(t, l, func(tx *ledger.Tx) error {
		_, err := tx.Exec(`INSERT INTO outbox_tool (tool_name, excused_ms, paused, paused_at)
			VALUES ('lamp', 5000, 0, NULL), ('raw', 5000, 1, ?)`, now.Add(-time.Minute))
		return err
	})
	for tool, want := range map[string]time.Duration{"lamp": 5 * time.Second, "door": 0, "raw": 65 * time.Second} {
		a := ledgertest.Accept(t, l, reg, ledgertest.Request(tool, "k"))
		ledgertest.Read(t, l, func(v *ledger.View) error {
			d, err := entry.Get(v, a.ID)
			if d.RoundExcused != want {
				t.Errorf("%s: got %v excused, want %v", tool, d.RoundExcused, want)
			}
			return err
		})
	}
}

func TestNothingIsLeftOfATransactionThatFails(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	p, err := intake.Prepare(reg, ledgertest.Request("lamp", "k"))
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	if err := l.Write(context.Background(), func(tx *ledger.Tx) error {
		_, err := p.Accept(tx)
		return errors.Join(err, stop)
	}); !errors.Is(err, stop) {
		t.Fatalf("got error %v, want %v", err, stop)
	}
	if n := count(t, l, `SELECT count(*) FROM outbox_operation`); n != 0 {
		t.Errorf("got %d operations, want none", n)
	}
	if a, err := submit(l, reg, ledgertest.Request("lamp", "k")); err != nil || !a.New {
		t.Errorf("got %+v, %v afterwards, want a new operation", a, err)
	}
}

func TestAfterPages(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	var want, got []int64
	for i := range 7 {
		want = append(want, ledgertest.Accept(t, l, reg, ledgertest.Request("lamp", fmt.Sprint(i))).ID)
	}
	ledgertest.Read(t, l, func(v *ledger.View) error {
		for after := int64(0); ; {
			ops, err := intake.After(v, after, 3)
			if err != nil || len(ops) == 0 {
				return err
			}
			for _, op := range ops {
				got = append(got, op.ID)
			}
			after = got[len(got)-1]
		}
	})
	if !slices.Equal(got, want) {
		t.Errorf("got operations %v, want %v", got, want)
	}
}

func TestHotStatementsUseTheirIndexes(t *testing.T) {
	l := ledgertest.Open(t)
	for name, want := range map[string]string{
		"intake":    "USING INDEX outbox_intake_parked (parked=?)",
		"look":      "USING PRIMARY KEY (tenant_id=? AND subject_id=? AND tool_name=? AND idempotency_key=?)",
		"childless": "INDEX outbox_operation_parent (parent=?)",
		"scope":     "tenant_id=? AND subject_id=? AND tool_name=? AND idempotency_key=?",
		"ref":       "(status_ref=?)",
		"load":      "USING INTEGER PRIMARY KEY (rowid=?)",
	} {
		var plan strings.Builder
		ledgertest.Read(t, l, func(v *ledger.View) error {
			args := make([]any, strings.Count(intake.Statements[name], "?"))
			return v.Each(func(r *ledger.Row) error {
				var id, parent, unused int
				var detail string
				err := r.Scan(&id, &parent, &unused, &detail)
				plan.WriteString(detail + "\n")
				return err
			}, `EXPLAIN QUERY PLAN `+intake.Statements[name], args...)
		})
		if got := plan.String(); !strings.Contains(got, want) || strings.Contains(got, "TEMP B-TREE") || strings.Contains(got, "SCAN outbox") {
			t.Errorf("plan of %s:\n%swant %s, no scan, no sort", name, got, want)
		}
	}
}
