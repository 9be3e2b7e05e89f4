package poller_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/poller"
)

// intakeRow inserts what an application would.
func intakeRow(t testing.TB, c *sql.Conn, tool, key string) {
	t.Helper()
	exec(t, c, `INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)
		VALUES ('acme', 'shop', ?, ?, '{}')`, tool, key)
}

func number(t testing.TB, c *sql.Conn, query string) (n int) {
	t.Helper()
	if err := c.QueryRowContext(context.Background(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

const (
	commits   = `SELECT commits FROM outbox_meta`
	delivered = `SELECT count(*) FROM outbox_entry WHERE state = 'delivered'`
)

// stay keeps a row with the key "bad" in the intake, whatever is tried.
func stay(t testing.TB, c *sql.Conn, raise string) {
	t.Helper()
	for _, event := range []string{"DELETE", "UPDATE"} {
		exec(t, c, fmt.Sprintf(`CREATE TRIGGER stay%[1]s BEFORE %[1]s ON outbox_intake WHEN old.idempotency_key = 'bad'
			BEGIN SELECT RAISE(%s); END`, event, raise))
	}
}

func TestARowThatTheFileRefusesStopsNeitherClaimsNorRows(t *testing.T) {
	const operation = `CREATE TRIGGER x BEFORE INSERT ON outbox_operation WHEN new.idempotency_key = 'bad' BEGIN SELECT RAISE(`
	for name, make := range map[string]func(*testing.T, *sql.Conn){
		"abort":         func(t *testing.T, c *sql.Conn) { exec(t, c, operation+`ABORT, 'no'); END`) },
		"rollback":      func(t *testing.T, c *sql.Conn) { exec(t, c, operation+`ROLLBACK, 'no'); END`) },
		"stay":          func(t *testing.T, c *sql.Conn) { stay(t, c, `ABORT, 'no'`) },
		"stay rollback": func(t *testing.T, c *sql.Conn) { stay(t, c, `ROLLBACK, 'no'`) },
		"stay ignore":   func(t *testing.T, c *sql.Conn) { stay(t, c, `IGNORE`) },
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(t *testing.T) {
				w := open(t, options{}, tool("mail", entry.Idempotent, &outside{})).run()
				c := foreign(t, w.path)
				make(t, c)
				for _, key := range []string{"good-1", "bad", "good-2"} {
					intakeRow(t, c, "mail", key)
				}
				w.accept("mail", "own")
				pass(time.Second)
				equal(t, "delivered", number(t, c, delivered), 3)
				before := number(t, c, commits)
				pass(time.Minute)
				if n := number(t, c, commits) - before; n > 40 {
					t.Errorf("got %d commits in a minute of nothing to do, want few", n)
				}
			})
		})
	}
}

func TestADrainThatFailsIsToldOnceAndEndsWithItsCause(t *testing.T) {
	story(t, func(t *testing.T) {
		core, log := observer.New(zap.InfoLevel)
		w := open(t, options{log: zap.New(core)}, tool("mail", entry.Idempotent, &outside{})).run()
		c := foreign(t, w.path)
		stay(t, c, `ABORT, 'secret'`)
		intakeRow(t, c, "mail", "bad")
		pass(2 * time.Second)
		if err := w.poller.Undrained(); err != nil {
			t.Errorf("after 2 s: got %v, want nothing yet", err)
		}
		pass(time.Minute)
		if err := w.poller.Undrained(); !errors.Is(err, poller.ErrUndrained) {
			t.Errorf("after a minute: got %v, want %v", err, poller.ErrUndrained)
		}
		told := log.FilterMessage("intake not drained").All()
		equal(t, "warnings", len(told), 1)
		equal(t, "why", told[0].ContextMap()["error"], any("a statement on the outbox tables: a trigger refuses it"))
		exec(t, c, `DROP TRIGGER stayDELETE`)
		pass(30 * time.Second)
		equal(t, "delivered", number(t, c, delivered), 1)
		equal(t, "undrained", w.poller.Undrained(), nil)
		equal(t, "told of the end", log.FilterMessage("intake is drained again").Len(), 1)
	})
}

func TestAnOutcomeThatATriggerRefusesWaitsAloneAndWithoutHurry(t *testing.T) {
	for _, table := range []string{
		`INSERT ON outbox_receipt WHEN new.operation_id = 1`,
		`UPDATE ON outbox_entry WHEN new.operation_id = 1 AND new.state = 'delivered'`,
	} {
		for _, raise := range []string{`ABORT, 'no'`, `ROLLBACK, 'no'`} {
			t.Run(table+" "+raise, func(t *testing.T) {
				story(t, func(t *testing.T) {
					w := open(t, options{}, tool("mail", entry.Idempotent, &outside{})).run()
					c := foreign(t, w.path)
					exec(t, c, `CREATE TRIGGER x BEFORE `+table+` BEGIN SELECT RAISE(`+raise+`); END`)
					id := w.accept("mail", "bad")
					pass(time.Second)
					before := number(t, c, commits)
					pass(20 * time.Second)
					if n := number(t, c, commits) - before; n > 30 {
						t.Errorf("got %d commits in 20 s, want about one a second", n)
					}
					other := w.accept("mail", "good")
					pass(100 * time.Millisecond)
					w.expect(other, entry.Delivered, "")
					w.expect(id, entry.Sending, "")
					exec(t, c, `DROP TRIGGER x`)
					pass(1100 * time.Millisecond)
					w.expect(id, entry.Delivered, "")
				})
			})
		}
	}
}

// What refuses the claim, or the mark, of one entry.
func TestAnEntryThatATriggerRefusesToStartStopsNoOther(t *testing.T) {
	for _, state := range []string{"claimed", "sending"} {
		t.Run(state, func(t *testing.T) {
			story(t, func(t *testing.T) {
				o := &outside{}
				w := open(t, options{}, tool("bell", entry.Opaque, o)).run()
				c := foreign(t, w.path)
				exec(t, c, `CREATE TRIGGER x BEFORE UPDATE ON outbox_entry WHEN new.operation_id = 1 AND new.state = '`+state+`'
					BEGIN SELECT RAISE(ABORT, 'no'); END`)
				id := w.accept("bell", "bad")
				other := w.accept("bell", "good")
				pass(time.Second)
				w.expect(id, map[string]entry.State{"claimed": entry.Pending, "sending": entry.Claimed}[state], "")
				w.expect(other, entry.Delivered, "")
				before := number(t, c, commits)
				pass(20 * time.Second)
				if n := number(t, c, commits) - before; n > 100 {
					t.Errorf("got %d commits in 20 s, want a few a second", n)
				}
				exec(t, c, `DROP TRIGGER x`)
				pass(1500 * time.Millisecond)
				w.expect(id, entry.Delivered, "")
				equal(t, "calls", len(o.called()), 2)
			})
		})
	}
}

// In real time, with the kernel's events of what the poller itself writes.
func TestAFailingDrainLeavesTheFileToOthers(t *testing.T) {
	reached := make(chan struct{}, 100)
	o := &outside{do: func(context.Context, handler.Call, int) ([]byte, error) {
		reached <- struct{}{}
		return nil, nil
	}}
	w := open(t, options{poll: 30 * time.Second}, tool("mail", entry.Idempotent, o)).run()
	watching, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- w.poller.Watch(watching) }()
	c := foreign(t, w.path)
	stay(t, c, `ROLLBACK, 'no'`)
	intakeRow(t, c, "mail", "bad")
	before, began := number(t, c, commits), time.Now()
	for i := range 50 {
		exec(t, c, `BEGIN IMMEDIATE`)
		exec(t, c, `CREATE TABLE IF NOT EXISTS orders (id INTEGER)`)
		exec(t, c, `COMMIT`)
		w.accept("mail", fmt.Sprint("own-", i))
		select {
		case <-reached:
		case <-time.After(5 * time.Second):
			t.Fatalf("operation %d: no request within 5 s", i)
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("50 transactions and requests took %v, want no wait for the drain", took)
	}
	if n := number(t, c, commits) - before; n > 4*50+50 {
		t.Errorf("got %d commits, want the few that 50 operations take", n)
	}
	cancel()
	if err := <-watched; err != nil {
		t.Errorf("watch ended with %v", err)
	}
	w.stop()
}
