package intake_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledgertest"
	"pgregory.net/rapid"
)

// What an operation says beside its scope, from a small world.
type said struct {
	n    int
	call string
	turn int64
}

// TestIdempotencyModel sends random requests, most of them under a key that was
// used before, and compares with a map.
func TestIdempotencyModel(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		tenant := fmt.Sprintf("tenant-%d", run)
		ledgertest.Session(t, l, "s", 1, tenant, "a")
		ledgertest.Session(t, l, "s", 1, tenant, "b")
		model := map[contract.Scope]said{}
		refs := map[contract.Scope]string{}
		for range rapid.IntRange(1, 30).Draw(rt, "requests") {
			scope := contract.Scope{
				Tenant: tenant, Subject: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "subject"),
				Tool: rapid.SampledFrom([]string{"lamp", "door"}).Draw(rt, "tool"),
				Key:  rapid.SampledFrom([]string{"7", "07"}).Draw(rt, "key"),
			}
			now := said{rapid.IntRange(0, 1).Draw(rt, "n"), rapid.SampledFrom([]string{"", "c"}).Draw(rt, "call"), rapid.Int64Range(0, 1).Draw(rt, "turn")}
			r := intake.Request{
				Scope: scope, Arguments: fmt.Appendf(nil, `{"n":%d}`, now.n),
				Origin: contract.Origin{CallID: now.call}, Session: "s", Turn: now.turn,
			}
			before, exists := model[scope]
			want := now.differs(before)
			a, err := submit(l, reg, r)
			var conflict *intake.Conflict
			switch {
			case !exists:
				if err != nil || !a.New {
					rt.Fatalf("%+v: got %+v, %v, want a new operation", r, a, err)
				}
				model[scope], refs[scope] = now, a.StatusRef
			case len(want) == 0:
				if err != nil || a.New || a.StatusRef != refs[scope] {
					rt.Fatalf("%+v: got %+v, %v, want a repetition of %s", r, a, err, refs[scope])
				}
			case !errors.As(err, &conflict) || !slices.Equal(conflict.Fields, want):
				rt.Fatalf("%+v: got %v, want a conflict in %v", r, err, want)
			}
		}
		if n := count(t, l, `SELECT count(*) FROM outbox_operation WHERE tenant_id = ?`, tenant); n != len(model) {
			rt.Fatalf("got %d operations, want %d", n, len(model))
		}
	})
}

func (s said) differs(o said) (fields []string) {
	if s.n != o.n {
		fields = append(fields, "arguments")
	}
	if s.call != o.call {
		fields = append(fields, "call_id")
	}
	if s.turn != o.turn {
		fields = append(fields, "turn")
	}
	return fields
}
