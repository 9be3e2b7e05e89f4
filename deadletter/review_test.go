package deadletter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/entry"
)

// subject is an unknown entry whose only send is unproven and known to be over.
func subject(effect entry.Effect, window time.Duration) deadletter.Subject {
	scope := contract.Scope{Tenant: "acme", Subject: "shop", Tool: "refund", Key: "order-17"}
	tool := &contract.Tool{Name: "refund", Effect: effect, Wire: contract.WireScope, KeyWindow: window}
	return deadletter.Subject{
		Due:  entry.Due{State: entry.Unknown, UnprovenSince: begin, OverAt: at(time.Minute), Round: 1, RoundAt: begin},
		Op:   &contract.Operation{Scope: scope, Effect: effect, WireKey: contract.WireKey(contract.WireScope, scope)},
		Tool: tool,
	}
}

// code of the refusal; "" where there is none.
func code(t *testing.T, err error) string {
	t.Helper()
	r, ok := errors.AsType[*deadletter.Refusal](err)
	if err != nil && !ok {
		t.Fatalf("got %v, want a refusal", err)
	}
	if !ok {
		return ""
	}
	return r.Code
}

func TestASecondEffectIsRiskedOnlyWhereThatIsAccepted(t *testing.T) {
	for _, c := range []struct {
		name   string
		effect entry.Effect
		window time.Duration
		now    time.Duration
		change func(*deadletter.Subject)
		want   string
	}{
		{"the downstream deduplicates", entry.Idempotent, 0, time.Hour, nil, ""},
		{"and remembers the key", entry.Idempotent, 2 * time.Hour, time.Hour, nil, ""},
		{"and has forgotten the key", entry.Idempotent, time.Hour, time.Hour, nil, deadletter.DuplicateRisk},
		{"effect and receipt are one commit", entry.Local, 0, time.Hour, nil, ""},
		{"it can only be asked", entry.Queryable, 0, time.Hour, nil, deadletter.DuplicateRisk},
		{"it can do nothing", entry.Opaque, 0, time.Hour, nil, deadletter.DuplicateRisk},
		{"nothing is unproven", entry.Opaque, 0, time.Hour, func(s *deadletter.Subject) {
			s.Due.State, s.Due.UnprovenSince = entry.Dead, time.Time{}
		}, ""},
		{"the attempt may still run", entry.Idempotent, 0, time.Second, nil, deadletter.AttemptRunning},
	} {
		s := subject(c.effect, c.window)
		if c.change != nil {
			c.change(&s)
		}
		if got := code(t, deadletter.Review{Action: deadletter.Retry}.Check(at(c.now), s)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		accepted := code(t, deadletter.Review{Action: deadletter.Retry, AcceptRisk: true}.Check(at(c.now), s))
		if c.want == deadletter.DuplicateRisk && accepted != "" {
			t.Errorf("%s, and the risk is accepted: got %q", c.name, accepted)
		}
	}
}

func TestAContractThatHasChangedIsAcceptedOrRefused(t *testing.T) {
	for _, c := range []struct {
		name         string
		change       func(*deadletter.Subject)
		want, accept string
	}{
		{"as it was", func(*deadletter.Subject) {}, "", ""},
		{"another schema", func(s *deadletter.Subject) { s.Tool.Revisions.Input = "2" }, deadletter.ContractDrift, ""},
		{"another effect class", func(s *deadletter.Subject) { s.Tool.Effect = entry.Opaque }, deadletter.ContractDrift, deadletter.ContractDrift},
		{"another wire key", func(s *deadletter.Subject) { s.Tool.Wire = contract.WireRaw }, deadletter.ContractDrift, deadletter.ContractDrift},
		{"no such tool", func(s *deadletter.Subject) { s.Tool = nil }, "", deadletter.NotConfigured},
	} {
		s := subject(entry.Idempotent, 0)
		c.change(&s)
		for accept, want := range map[bool]string{false: c.want, true: c.accept} {
			r := deadletter.Review{Action: deadletter.Retry, AcceptContract: accept}
			if got := code(t, r.Check(at(time.Hour), s)); got != want {
				t.Errorf("%s, accepted %v: got %q, want %q", c.name, accept, got, want)
			}
		}
		if got := code(t, deadletter.Review{Action: deadletter.Discard}.Check(at(time.Hour), s)); got != "" {
			t.Errorf("%s: discard is refused with %q", c.name, got)
		}
	}
}
