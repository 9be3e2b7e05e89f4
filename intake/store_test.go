package intake_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// takeIn is what the poller does: all rows in one transaction, else apart.
func takeIn(t *testing.T, l *ledger.Ledger, reg *contract.Registry) (d intake.Drained, apart bool, err error) {
	t.Helper()
	err = l.Write(context.Background(), func(tx *ledger.Tx) (err error) {
		d, err = intake.Drain(tx, reg, 100)
		return err
	})
	if err == nil {
		return d, false, nil
	}
	if ledger.Refusal(err) == "" {
		t.Fatalf("drain: %v, want a refusal", err)
	}
	d, err = intake.Apart(context.Background(), l, reg, 100)
	return d, true, err
}

func ddl(t *testing.T, l *ledger.Ledger, stmt string) {
	t.Helper()
	ledgertest.Write(t, l, func(tx *ledger.Tx) error {
		_, err := tx.Exec(stmt)
		return err
	})
}

// Triggers and constraints of an application, each of which lets the operation
// with the key "bad" not be made, or its row not go where it should.
var causes = []struct {
	name, stmt    string
	refused, left int    // rows
	message       string // part of it
	apart         bool
}{
	{"abort", `CREATE TRIGGER x BEFORE INSERT ON outbox_operation WHEN new.idempotency_key = 'bad' BEGIN SELECT RAISE(ABORT, 'no bad'); END`,
		1, 0, "a trigger refuses it", false},
	{"fail", `CREATE TRIGGER x AFTER INSERT ON outbox_operation WHEN new.idempotency_key = 'bad' BEGIN SELECT RAISE(FAIL, 'no bad'); END`,
		1, 0, "a trigger refuses it", false},
	{"ignore", `CREATE TRIGGER x BEFORE INSERT ON outbox_operation WHEN new.idempotency_key = 'bad' BEGIN SELECT RAISE(IGNORE); END`,
		1, 0, "a trigger ignores it", false},
	{"rollback", `CREATE TRIGGER x BEFORE INSERT ON outbox_operation WHEN new.idempotency_key = 'bad' BEGIN SELECT RAISE(ROLLBACK, 'no bad'); END`,
		1, 0, "a trigger refuses it", true},
	{"deferred foreign key", `CREATE TRIGGER x AFTER INSERT ON outbox_operation WHEN new.idempotency_key = 'bad' BEGIN INSERT INTO child VALUES (77); END`,
		1, 0, "a foreign key is left violated", false},
	{"constraint", `CREATE TRIGGER x AFTER INSERT ON outbox_operation WHEN new.idempotency_key = 'bad' BEGIN INSERT INTO parent VALUES (1, NULL); END`,
		1, 0, "a constraint refuses it (SQLite 1299)", false},
	{"entry", `CREATE TRIGGER x BEFORE INSERT ON outbox_entry WHEN (SELECT idempotency_key FROM outbox_operation WHERE id = new.operation_id) = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END`,
		1, 0, "a trigger refuses it", false},
	{"entry ignored", `CREATE TRIGGER x BEFORE INSERT ON outbox_entry WHEN (SELECT idempotency_key FROM outbox_operation WHERE id = new.operation_id) = 'bad' BEGIN SELECT RAISE(IGNORE); END`,
		1, 0, "a trigger ignores it", false},
	{"the row may not leave", `CREATE TRIGGER x BEFORE DELETE ON outbox_intake WHEN old.idempotency_key = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END`,
		0, 1, "", true},
	{"the row is kept", `CREATE TRIGGER x BEFORE DELETE ON outbox_intake WHEN old.idempotency_key = 'bad' BEGIN SELECT RAISE(IGNORE); END`,
		0, 1, "", true},
}

func TestARowThatTheFileRefusesStopsNoOther(t *testing.T) {
	for _, c := range causes {
		t.Run(c.name, func(t *testing.T) {
			l, reg := fileOfAnApplication(t)
			ddl(t, l, c.stmt)
			rows(t, l, "good-1", "good-2", "bad", "good-3", "good-4")
			d, apart, err := takeIn(t, l, reg)
			if want := (intake.Drained{Accepted: 4, Refused: c.refused, Parked: c.left}); err != nil || d != want || apart != c.apart {
				t.Errorf("got %+v, apart %v, %v, want %+v, apart %v", d, apart, err, want, c.apart)
			}
			if n := count(t, l, `SELECT count(*) FROM outbox_operation WHERE idempotency_key LIKE 'good%'`); n != 4 {
				t.Errorf("got %d operations, want 4", n)
			}
			if got := count(t, l, `SELECT count(*) FROM outbox_intake WHERE parked = 1`); got != c.left {
				t.Errorf("got %d rows parked, want %d", got, c.left)
			}
			if c.refused > 0 {
				got := refused(t, l)
				if got.code != intake.StoreRefused || !strings.Contains(got.message, c.message) || strings.Contains(got.message, "bad") {
					t.Errorf("got %+v, want %s with %q and no value", got, intake.StoreRefused, c.message)
				}
				keptBytes(t, l, map[string]any{"idempotency_key": "bad", "arguments": "{}"})
			}
			if d, apart, err := takeIn(t, l, reg); d != (intake.Drained{}) || apart || err != nil {
				t.Errorf("again: got %+v, apart %v, %v, want nothing to do", d, apart, err)
			}
		})
	}
}

func fileOfAnApplication(t *testing.T) (*ledger.Ledger, *contract.Registry) {
	t.Helper()
	l, reg := ledgertest.Open(t), registry(t)
	ddl(t, l, `CREATE TABLE parent (a INTEGER PRIMARY KEY NOT NULL, b TEXT NOT NULL) STRICT`)
	ddl(t, l, `CREATE TABLE child (parent INTEGER REFERENCES parent (a) DEFERRABLE INITIALLY DEFERRED)`)
	return l, reg
}

func rows(t *testing.T, l *ledger.Ledger, keys ...string) {
	t.Helper()
	for _, key := range keys {
		insert(t, l, map[string]any{"idempotency_key": key})
	}
}

// A trigger that cannot run at all refuses every row, and is no reason to keep on
// trying.
func TestATriggerThatNamesAMissingTableRefusesEveryRow(t *testing.T) {
	l, reg := fileOfAnApplication(t)
	ddl(t, l, `CREATE TRIGGER x AFTER INSERT ON outbox_operation BEGIN INSERT INTO missing VALUES (1); END`)
	rows(t, l, "a", "b")
	d, apart, err := takeIn(t, l, reg)
	if want := (intake.Drained{Refused: 2}); d != want || apart || err != nil {
		t.Errorf("got %+v, apart %v, %v, want %+v", d, apart, err, want)
	}
	ddl(t, l, `DROP TRIGGER x`)
	rows(t, l, "a", "b")
	if d, _, err := takeIn(t, l, reg); d.Accepted != 2 || err != nil {
		t.Errorf("once it is gone: got %+v, %v, want 2 accepted", d, err)
	}
}

// What cannot even be refused waits for the next reload or start.
func TestARowThatCannotBeRefusedIsParked(t *testing.T) {
	for _, raise := range []string{"ABORT, 'no'", "FAIL, 'no'", "ROLLBACK, 'no'", "IGNORE"} {
		t.Run(raise, func(t *testing.T) {
			l, reg := ledgertest.Open(t), registry(t)
			ddl(t, l, fmt.Sprintf(`CREATE TRIGGER x BEFORE INSERT ON outbox_refused BEGIN SELECT RAISE(%s); END`, raise))
			rows(t, l, "good-1", "", "good-2", " ")
			if d, _, err := takeIn(t, l, reg); d != (intake.Drained{Accepted: 2, Parked: 2}) || err != nil {
				t.Errorf("got %+v, %v, want 2 accepted and 2 parked", d, err)
			}
			ddl(t, l, `DROP TRIGGER x`)
			ledgertest.Write(t, l, func(tx *ledger.Tx) error {
				_, err := intake.Unpark(tx, reg, 10)
				return err
			})
			if d, _, err := takeIn(t, l, reg); d.Refused != 2 || err != nil {
				t.Errorf("once it is gone: got %+v, %v, want 2 refused", d, err)
			}
		})
	}
}

// Where a row may neither leave nor be changed, it stays, and the error says so.
func TestARowThatCannotMoveAtAllStopsNoOther(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	for _, event := range []string{"DELETE", "UPDATE"} {
		ddl(t, l, fmt.Sprintf(`CREATE TRIGGER x%[1]s BEFORE %[1]s ON outbox_intake WHEN old.idempotency_key = 'bad'
			BEGIN SELECT RAISE(ROLLBACK, 'bad'); END`, event))
	}
	rows(t, l, "good-1", "bad", "good-2")
	d, _, err := takeIn(t, l, reg)
	if d != (intake.Drained{Accepted: 2}) || ledger.Refusal(err) == "" {
		t.Errorf("got %+v, %v, want 2 accepted and a refusal", d, err)
	}
	if n := count(t, l, `SELECT count(*) FROM outbox_intake`) + count(t, l, `SELECT count(*) FROM outbox_operation`); n != 3 {
		t.Errorf("got %d rows and operations, want 3", n)
	}
	ddl(t, l, `DROP TRIGGER xDELETE`)
	if d, apart, err := takeIn(t, l, reg); d.Accepted != 1 || apart || err != nil {
		t.Errorf("once it may leave: got %+v, apart %v, %v, want it accepted", d, apart, err)
	}
}

// Many rows of which every other one destroys the transaction.
func TestManyRowsThatDestroyTheTransaction(t *testing.T) {
	l, reg := ledgertest.Open(t), registry(t)
	ddl(t, l, `CREATE TRIGGER x BEFORE INSERT ON outbox_operation WHEN new.idempotency_key LIKE 'bad%' BEGIN SELECT RAISE(ROLLBACK, ''); END`)
	for i := range 40 {
		rows(t, l, fmt.Sprintf("bad-%d", i), fmt.Sprintf("good-%d", i))
	}
	sum := intake.Drained{More: true}
	for sum.More {
		d, _, err := takeIn(t, l, reg)
		if err != nil {
			t.Fatal(err)
		}
		sum.Accepted, sum.Refused, sum.More = sum.Accepted+d.Accepted, sum.Refused+d.Refused, d.More
	}
	if sum.Accepted != 40 || sum.Refused != 40 {
		t.Errorf("got %+v, want 40 accepted and 40 refused", sum)
	}
}
