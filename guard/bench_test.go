package guard_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledgertest"

	"github.com/outboxd/outboxd/contract"
)

const orderSchema = `{"type":"object","required":["order","lines"],"properties":{"order":{"type":"string"},"note":{"type":"string","maxLength":2000},
	"lines":{"type":"array","items":{"type":"object","required":["sku","n"],"properties":{"sku":{"type":"string"},"n":{"type":"integer","minimum":1}}}}}}`

// BenchmarkContract is what the contract costs an operation with 1 KB of arguments and
// 1 KB of result, from its accept to its receipt, without the file: strict JSON,
// schemas, digests, wire key, and a static guard that is asked three times.
func BenchmarkContract(b *testing.B) {
	path := filepath.Join(b.TempDir(), "order.json")
	if err := os.WriteFile(path, []byte(orderSchema), 0o600); err != nil {
		b.Fatal(err)
	}
	for name, schema := range map[string]string{"schemas=none": "", "schemas=both": path} {
		b.Run(name, func(b *testing.B) { benchmarkContract(b, schema) })
	}
}

func benchmarkContract(b *testing.B, schema string) {
	c := ledgertest.Tool("refund", entry.Idempotent)
	c.InputSchema, c.OutputSchema = schema, schema
	c.Guards = []config.Guard{{Purpose: "authorize", Static: &config.StaticGuard{Roles: []string{"clerk"}}}}
	reg := ledgertest.Registry(b, c)
	tool, _ := reg.Lookup("refund")
	set, err := guard.Build(c, nil, true)
	if err != nil {
		b.Fatal(err)
	}
	body := []byte(`{"lines":[{"n":1,"sku":"crate-17"},{"n":2,"sku":"kite-204"}],"note":"` + strings.Repeat("n", 930) + `","order":"17"}`)
	ctx := context.Background()
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		r := ledgertest.Request("refund", "order-17")
		r.Arguments = body
		p, err := intake.Prepare(reg, r)
		if err != nil {
			b.Fatal(err)
		}
		op := p.Operation()
		q := guard.Question{Roles: clerks, Call: handler.Call{Tool: "refund", Tenant: "acme", Subject: "shop", Arguments: op.Arguments}}
		for range 2 {
			if err := set.Static(ctx, q); err != nil {
				b.Fatal(err)
			}
		}
		if err := guard.Check(&op, tool); err != nil {
			b.Fatal(err)
		}
		if err := set.Effect(ctx, q); err != nil {
			b.Fatal(err)
		}
		if problems := tool.Output.Check("result", body); len(problems) > 0 {
			b.Fatal(problems)
		}
		op.Bind(contract.ResultDigest(body), "ref-1").Digest()
	}
}
