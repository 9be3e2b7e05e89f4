package api_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outboxd/outboxd/api"
)

// Eight clients submit over the socket; each submit is durable before it is
// answered.
func BenchmarkSubmitOverSocket(b *testing.B) {
	w := newWorld(b, script{})
	benchmark(b, func(int) *api.Client {
		transport := api.Socket(w.socket)
		b.Cleanup(transport.CloseIdleConnections)
		return api.NewClient(transport)
	})
}

func BenchmarkSubmitInProcess(b *testing.B) {
	w := newWorld(b, script{})
	benchmark(b, func(int) *api.Client { return w.as(0) })
}

func benchmark(b *testing.B, client func(int) *api.Client) {
	const clients = 8
	var next atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for i := range clients {
		c := client(i)
		all.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if _, err := c.Submit(context.Background(), aCase(opaque, "order-"+strconv.FormatInt(n, 10)), 0); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "submits/s")
}

// One client asks where a delivered operation stands.
func BenchmarkStatusOverSocket(b *testing.B) {
	w := newWorld(b, script{})
	ref := w.place(idempotent, "order-1", "delivered")
	for b.Loop() {
		if _, err := w.client.Status(context.Background(), ref, 0); err != nil {
			b.Fatal(err)
		}
	}
}
