package intake_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

func BenchmarkPrepare(b *testing.B) {
	reg := ledgertest.Registry(b, ledgertest.Tool("refund", entry.Idempotent))
	r := ledgertest.Request("refund", "order-17")
	r.Arguments = []byte(`{"amount":1250,"currency":"EUR","order":"17","reason":"damaged in transit"}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := intake.Prepare(reg, r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAcceptInOneTransaction is what a new operation costs beside its
// commit.
func BenchmarkAcceptInOneTransaction(b *testing.B) {
	const batch = 500
	l := ledgertest.Open(b)
	reg := ledgertest.Registry(b, ledgertest.Tool("refund", entry.Idempotent))
	b.ReportAllocs()
	prepared := make([]*intake.Prepared, batch)
	for done := 0; done < b.N; done += batch {
		b.StopTimer()
		for i := range prepared {
			p, err := intake.Prepare(reg, ledgertest.Request("refund", fmt.Sprintf("order-%d", done+i)))
			if err != nil {
				b.Fatal(err)
			}
			prepared[i] = p
		}
		n := min(batch, b.N-done)
		ledgertest.Write(b, l, func(tx *ledger.Tx) error {
			b.StartTimer()
			defer b.StopTimer()
			for _, p := range prepared[:n] {
				if _, err := p.Accept(tx); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// BenchmarkAccept is the whole way of an operation into the file, for many
// callers at a time, each with a durable commit.
func BenchmarkAccept(b *testing.B) {
	for _, callers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			l := ledgertest.Open(b)
			reg := ledgertest.Registry(b, ledgertest.Tool("refund", entry.Idempotent))
			var key atomic.Int64
			b.SetParallelism((callers + 1) / 2)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					p, err := intake.Prepare(reg, ledgertest.Request("refund", fmt.Sprintf("order-%d", key.Add(1))))
					if err != nil {
						b.Error(err)
						return
					}
					if err := l.Write(context.Background(), func(tx *ledger.Tx) error {
						_, err := p.Accept(tx)
						return err
					}); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
		})
	}
}

// BenchmarkDrain is given per row, without the commit.
func BenchmarkDrain(b *testing.B) {
	const batch = 500
	l := ledgertest.Open(b)
	reg := ledgertest.Registry(b, ledgertest.Tool("refund", entry.Idempotent))
	b.ReportAllocs()
	for done := 0; done < b.N; done += batch {
		b.StopTimer()
		n := min(batch, b.N-done)
		ledgertest.Write(b, l, func(tx *ledger.Tx) error {
			_, err := tx.Exec(`WITH RECURSIVE n(i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1 + ?2)
				INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)
				SELECT 'acme', 'shop', 'refund', 'order-' || i, '{"order":17}' FROM n`, done, n)
			return err
		})
		ledgertest.Write(b, l, func(tx *ledger.Tx) error {
			b.StartTimer()
			defer b.StopTimer()
			d, err := intake.Drain(tx, reg, batch)
			if d.Accepted != n {
				b.Errorf("got %+v, want %d accepted", d, n)
			}
			return err
		})
	}
}
