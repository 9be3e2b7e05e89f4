package daemon_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/handler"
)

// bank does what it is asked for and loses the acknowledgement, but knows.
type bank struct {
	mu   sync.Mutex // guards what follows
	done map[string]int
}

func (b *bank) pay(_ context.Context, c handler.Call) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done[c.WireKey]++
	return nil, errors.New("connection lost")
}

// Ask implements handler.Asker.
func (b *bank) Ask(_ context.Context, c handler.Call) handler.Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done[c.WireKey] == 0 {
		return handler.Answer{Found: handler.NotApplied}
	}
	return handler.Answer{Found: handler.Applied, Code: "found", Result: []byte(`{"paid":true}`)}
}

func TestALostAcknowledgementIsReconciledByTheProgram(t *testing.T) {
	b := &bank{done: map[string]int{}}
	w := run(t, settings(t.TempDir()), daemon.Options{Tools: []daemon.Tool{{
		Config:  config.Tool{Name: "pay", Effect: "queryable", Timeout: time.Second},
		Handler: handler.Func(b.pay), Asker: b,
	}}}).ready()
	a, err := w.client.Submit(t.Context(), request("pay", "order-17"), patience)
	must(t, err)
	if a.Status != "succeeded" || a.Delivery != "receipt_reconciled" || string(a.Result) != `{"paid":true}` {
		t.Errorf("got %+v, want it reconciled", a)
	}
	if len(b.done) != 1 {
		t.Errorf("paid under %d keys, want one", len(b.done))
	}
	for _, times := range b.done {
		if times != 1 {
			t.Errorf("paid %d times, want once", times)
		}
	}
	must(t, w.end())
}

func TestTooFewFilesLowerTheConcurrency(t *testing.T) {
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 124, Max: before.Max}))
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) }()
	w := run(t, settings(t.TempDir()), daemon.Options{}).ready()
	said := w.says("too few open files allowed for worker.concurrency: it is lowered", 1)[0].ContextMap()
	if said["concurrency"] != int64(20) || said["files"] != uint64(124) || said["needed"] != int64(160) {
		t.Errorf("it says %v, want 20 for 124 files, where 160 are needed", said)
	}
	must(t, w.end())
}
