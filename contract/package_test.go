package contract_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/contract"
)

// sealed is the package of an operation that was delivered.
func sealed() *contract.Package {
	op := &contract.Operation{
		StatusRef: "019ae000-0000-7000-8000-000000000000", Scope: contract.Scope{Tenant: "acme", Subject: "shop", Tool: "refund", Key: "order-17"},
		Arguments: []byte(`{"amount":5}`),
		Revisions: contract.Revisions{Input: "i", Output: "o", Effect: "e", Handler: "h", Producer: "p", Policy: "y"},
		Origin:    contract.Origin{Provider: "pr", APIFamily: "af", AdapterRevision: "ar", ResponseID: "re", CallID: "ca"},
	}
	op.Original = op.Revisions
	op.RequestSum = contract.RequestDigest(op.Scope, op.Arguments, op.Original)
	result := []byte(`{"id":7}`)
	sum := contract.ResultDigest(result)
	binding := op.Bind(sum, "ref-1").Digest()
	return contract.NewPackage(op, result, sum[:], binding[:], "ref-1")
}

func TestAPackageFitsOnlyWhatItWasMadeFor(t *testing.T) {
	raw, err := json.Marshal(sealed())
	if err != nil {
		t.Fatal(err)
	}
	whole, err := contract.ParsePackage(raw)
	if err != nil || len(whole.Verify()) != 0 {
		t.Fatalf("whole: got %v, %v", whole, err)
	}
	for _, change := range []string{
		`"acme"`, `"shop"`, `"refund"`, `"order-17"`, `"pr"`, `"af"`, `"ar"`, `"re"`, `"ca"`, `"i"`, `"o"`, `"e"`, `"h"`, `"p"`, `"y"`, `"ref-1"`,
		`"019ae000-0000-7000-8000-000000000000"`, `"outboxd.package.v1"`,
	} {
		for i := range strings.Count(string(raw), ":"+change) {
			p, err := contract.ParsePackage([]byte(nth(string(raw), ":"+change, `:"moved"`, i)))
			if err != nil {
				t.Fatalf("%s: %v", change, err)
			}
			if len(p.Verify()) == 0 {
				t.Errorf("%s, number %d: moved, and still fits", change, i+1)
			}
		}
	}
	for _, change := range [][2]string{{`{"amount":5}`, `{"amount":6}`}, {`{"id":7}`, `{"id":8}`}, {whole.Request[:8], "00000000"}, {whole.ResultSum[:8], "00000000"}, {whole.Binding[:8], "00000000"}} {
		p, err := contract.ParsePackage([]byte(strings.Replace(string(raw), change[0], change[1], 1)))
		if err != nil || len(p.Verify()) == 0 {
			t.Errorf("%s: got %v, want misfits", change[0], err)
		}
	}
}

// nth replaces the n-th occurrence.
func nth(text, old, with string, n int) string {
	at := 0
	for range n {
		at += strings.Index(text[at:], old) + len(old)
	}
	return text[:at] + strings.Replace(text[at:], old, with, 1)
}

func TestAnAnswerIsReadWithItsPackageOrNotAtAll(t *testing.T) {
	p := sealed()
	answer := func(change func(map[string]any)) []byte {
		m := map[string]any{"status_ref": p.StatusRef, "tool": p.Tool, "idempotency_key": p.Key, "result": p.Result, "package": p, "gate": "PASS"}
		change(m)
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	if _, err := contract.ParsePackage(answer(func(map[string]any) {})); err != nil {
		t.Errorf("whole: %v", err)
	}
	for _, name := range []string{"status_ref", "tool", "idempotency_key", "result"} {
		_, err := contract.ParsePackage(answer(func(m map[string]any) { m[name] = "other" }))
		if !errors.Is(err, contract.ErrPackage) {
			t.Errorf("another %s around it: got %v, want %v", name, err, contract.ErrPackage)
		}
	}
	for _, raw := range []string{``, `{}`, `[]`, `{"package":{}}`, `{"format":"outboxd.package.v1","more":1}`, `{"a":1,"a":2}`, `{"package":null}`} {
		if _, err := contract.ParsePackage([]byte(raw)); err == nil {
			t.Errorf("%s is read", raw)
		}
	}
}
