package poller_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
)

// In real time: the event comes from the kernel.
func TestACommitOfAnotherProgramWakesThePoller(t *testing.T) {
	reached := make(chan time.Time, 20)
	o := &outside{do: func(context.Context, handler.Call, int) ([]byte, error) {
		reached <- time.Now()
		return nil, nil
	}}
	w := open(t, options{poll: 30 * time.Second}, tool("mail", entry.Idempotent, o)).run()
	watching, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- w.poller.Watch(watching) }()
	c := foreign(t, w.path)
	exec(t, c, `CREATE TABLE orders (id INTEGER PRIMARY KEY)`)
	deadline := time.After(5 * time.Second)
	for i := range 10 {
		exec(t, c, `BEGIN IMMEDIATE`)
		exec(t, c, `INSERT INTO orders VALUES (?)`, i)
		exec(t, c, `INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)
			VALUES ('acme', 'shop', 'mail', ?, '{}')`, strconv.Itoa(i))
		if i == 5 {
			exec(t, c, `ROLLBACK`)
			continue
		}
		exec(t, c, `COMMIT`)
		select {
		case <-reached:
		case <-deadline:
			t.Fatalf("row %d: no request within 5 s of the commits", i)
		}
	}
	cancel()
	if err := <-watched; err != nil {
		t.Errorf("watch ended with %v", err)
	}
	w.stop()
	equal(t, "requests", len(o.called()), 9)
}
