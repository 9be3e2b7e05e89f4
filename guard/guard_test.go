package guard_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// accepted is an operation as it stands in a file, and its tool.
func accepted(t *testing.T) (contract.Operation, contract.Tool) {
	t.Helper()
	l := ledgertest.Open(t)
	reg := ledgertest.Registry(t, ledgertest.Tool("refund", entry.Queryable))
	a := ledgertest.Accept(t, l, reg, ledgertest.Request("refund", "order-17"))
	var op *contract.Operation
	ledgertest.Read(t, l, func(v *ledger.View) error {
		ops, err := intake.Load(v, []int64{a.ID})
		op = ops[a.ID]
		return err
	})
	tool, _ := reg.Lookup("refund")
	return *op, *tool
}

func TestOnlyWhatWasAcceptedUnderTodaysContractMayHaveAnEffect(t *testing.T) {
	op, tool := accepted(t)
	if err := guard.Check(&op, &tool); err != nil {
		t.Fatalf("what was accepted is refused: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*contract.Operation, *contract.Tool)
		reason string
		what   string
	}{
		"arguments changed":       {func(o *contract.Operation, _ *contract.Tool) { o.Arguments = []byte(`{"order":18}`) }, guard.Altered, "request digest"},
		"arguments spaced":        {func(o *contract.Operation, _ *contract.Tool) { o.Arguments = []byte(`{"order": 17}`) }, guard.Altered, "canonical"},
		"arguments gone":          {func(o *contract.Operation, _ *contract.Tool) { o.Arguments = nil }, guard.Altered, "canonical"},
		"other tenant":            {func(o *contract.Operation, _ *contract.Tool) { o.Scope.Tenant = "secret-tenant" }, guard.Altered, "request digest"},
		"other digest":            {func(o *contract.Operation, _ *contract.Tool) { o.RequestSum[0]++ }, guard.Altered, "request digest"},
		"stored revision changed": {func(o *contract.Operation, _ *contract.Tool) { o.Original.Input = "x" }, guard.Altered, "request digest"},
		"accepted by a review":    {func(o *contract.Operation, _ *contract.Tool) { o.Revisions.Input = "x" }, guard.Drift, "input_revision"},
		"other wire key":          {func(o *contract.Operation, _ *contract.Tool) { o.WireKey = "secret-key" }, guard.Altered, "wire key"},
		"other wire key mode":     {func(_ *contract.Operation, t *contract.Tool) { t.Wire = contract.WireRaw }, guard.Drift, "wire key mode"},
		"other effect class":      {func(_ *contract.Operation, t *contract.Tool) { t.Effect = entry.Idempotent }, guard.Drift, "effect class"},
		"other input":             {func(_ *contract.Operation, t *contract.Tool) { t.Revisions.Input = "x" }, guard.Drift, "input_revision"},
		"other handler":           {func(_ *contract.Operation, t *contract.Tool) { t.Revisions.Handler = "x" }, guard.Drift, "handler_revision"},
		"other policy":            {func(_ *contract.Operation, t *contract.Tool) { t.Revisions.Policy = "x" }, guard.Drift, "policy_revision"},
	} {
		op, tool := op, tool
		c.change(&op, &tool)
		var refusal *guard.Refusal
		if err := guard.Check(&op, &tool); !errors.As(err, &refusal) {
			t.Errorf("%s: got %v, want a refusal", name, err)
			continue
		}
		if refusal.Reason != c.reason || !strings.Contains(refusal.What, c.what) {
			t.Errorf("%s: got %v, want %s: %s", name, refusal, c.reason, c.what)
		}
		if strings.Contains(refusal.Error(), "secret") {
			t.Errorf("%s: a value of the request is told: %v", name, refusal)
		}
	}
}

func TestWhatAReviewAcceptedIsNoDrift(t *testing.T) {
	op, tool := accepted(t)
	tool.Revisions.Input, tool.Revisions.Handler = "x", "y"
	op.Revisions = tool.Revisions
	if err := guard.Check(&op, &tool); err != nil {
		t.Errorf("got %v, want the accepted contract to count and the digest to cover the original one", err)
	}
}

func TestTuningIsNoDrift(t *testing.T) {
	op, tool := accepted(t)
	tool.Timeout, tool.Concurrency, tool.Retry.MaxAttempts, tool.KeyWindow = 1, 1, 1, 1
	if err := guard.Check(&op, &tool); err != nil {
		t.Errorf("got %v, want tuning to reach the backlog", err)
	}
}
