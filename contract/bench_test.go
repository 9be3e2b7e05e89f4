package contract_test

import (
	"testing"

	"github.com/outboxd/outboxd/contract"
)

const payload = `{"amount":1299,"currency":"EUR","items":[{"id":"sku-1","n":2},{"id":"sku-2","n":1}],"order":"order-17"}`

const spaced = `{"order": "order-17", "amount": 1299, "currency": "EUR", "items": [{"id": "sku-1", "n": 2}, {"n": 1, "id": "sku-2"}]}`

var (
	benchScope     = contract.Scope{Tenant: "acme", Subject: "customer-4711", Tool: "refund_order", Key: "order-17/refund"}
	benchRevisions = contract.Revisions{Input: "AAAAAAAAAAAAAAAA", Output: "BBBBBBBBBBBBBBBB", Effect: "CCCCCCCCCCCCCCCC", Handler: "DDDDDDDDDDDDDDDD", Producer: "EEEEEEEEEEEEEEEE", Policy: "FFFFFFFFFFFFFFFF"}
)

func BenchmarkCanonical(b *testing.B) {
	for name, input := range map[string]string{
		"canonical":  payload,
		"spaced":     spaced,
		"exponent":   `{"amount":12.5e-8,"order":"order-17"}`,
		"non-ascii":  `{"city":"Zürich","name":"Ольга","note":"退款 🙂","order":"order-17"}`,
		"long-float": `{"ratio":0.30000000000000004}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			raw := []byte(input)
			for b.Loop() {
				if _, err := contract.Canonical(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkIsCanonical(b *testing.B) {
	b.ReportAllocs()
	raw := []byte(payload)
	for b.Loop() {
		if !contract.IsCanonical(raw) {
			b.Fatal("not canonical")
		}
	}
}

func BenchmarkRequestDigest(b *testing.B) {
	b.ReportAllocs()
	args := []byte(payload)
	for b.Loop() {
		contract.RequestDigest(benchScope, args, benchRevisions)
	}
}

func BenchmarkResultDigest(b *testing.B) {
	b.ReportAllocs()
	result := []byte(payload)
	for b.Loop() {
		contract.ResultDigest(result)
	}
}

func BenchmarkBindingDigest(b *testing.B) {
	b.ReportAllocs()
	v := contract.Binding{
		StatusRef: "0190b6f2-7d3c-7c39-9c1b-0d6a1b2c3d4e", Scope: benchScope, Revisions: benchRevisions,
		Provider: "openai", APIFamily: "responses", AdapterRevision: "3", ResponseID: "resp_1", CallID: "call_1", Reference: "re_42",
	}
	for b.Loop() {
		v.Digest()
	}
}

func BenchmarkWireKey(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		contract.WireKey(contract.WireScope, benchScope)
	}
}

func BenchmarkCheckKey(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if err := contract.CheckKey("order-17/refund"); err != nil {
			b.Fatal(err)
		}
	}
}
