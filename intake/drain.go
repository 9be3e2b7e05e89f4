package intake

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/ledger"
)

// Drained is what became of the rows that one Drain looked at.
type Drained struct {
	Accepted int  // new operations
	Repeated int  // equal to an operation that exists; the row is gone
	Refused  int  // moved to outbox_refused
	Parked   int  // of a tool that is not configured, or neither taken nor refused by the file; kept until Unpark
	More     bool // there may be more rows to look at
}

// drainBytes bounds what one Drain reads, or moves.
const drainBytes = 4 << 20

// Drain makes operations or refusals of up to n rows of outbox_intake, the
// oldest first, in the transaction that it is given: all of them or none. A row
// with a mistake never stops another one, nor does a row that a trigger or a
// constraint of the application refuses. Where one does that destroys the
// transaction, or does not let rows leave the intake, the error is a
// ledger.Refusal: Apart finds out which row it is. More than some 500 rows make a
// batch that heartbeats wait for.
func Drain(tx *ledger.Tx, reg *contract.Registry, n int) (Drained, error) {
	rows, more, err := waiting(tx, n)
	if err != nil {
		return Drained{}, err
	}
	d := drain{tx: tx, reg: reg, sum: Drained{More: more}}
	for i := range rows {
		if err := d.row(&rows[i]); err != nil {
			return Drained{}, err
		}
	}
	return d.sum, d.finish()
}

// drain is one run of Drain. The rows that it is done with leave the intake
// together, at its end.
type drain struct {
	tx           *ledger.Tx
	reg          *contract.Registry
	sum          Drained
	done, parked []int64
}

func (d *drain) row(r *intakeRow) error {
	p, err := r.prepare(d.reg)
	var invalid *Invalid
	switch {
	case errors.As(err, &invalid) && invalid.Code == ToolUnknown:
		d.park(r.id)
		return nil
	case errors.As(err, &invalid):
		return d.refuse(r.id, invalid.Code, invalid.Error())
	case err != nil:
		return err
	}
	return d.accept(r.id, p)
}

func (d *drain) park(id int64) {
	d.sum.Parked++
	d.parked = append(d.parked, id)
}

func (d *drain) accept(id int64, p *Prepared) error {
	var a Accepted
	err := d.tx.Try(func() (err error) {
		a, err = p.Accept(d.tx)
		return err
	})
	code, message, refused := refusalOf(err)
	switch {
	case refused:
		return d.refuse(id, code, message)
	case err != nil:
		return err
	case a.New:
		d.sum.Accepted++
	default:
		d.sum.Repeated++
	}
	d.done = append(d.done, id)
	return nil
}

// survivable: the file refused the one row, and the transaction goes on.
func survivable(err error) bool {
	return ledger.Refusal(err) != "" && !errors.Is(err, ledger.ErrVoid)
}

func storeMessage(err error) string {
	return "the database does not take the operation: " + ledger.Refusal(err) +
		"; see what the application's triggers and constraints do to the outbox tables"
}

// refuse moves a row to outbox_refused. One that cannot go there is parked.
func (d *drain) refuse(id int64, code, message string) error {
	err := d.tx.Try(func() error { return d.move(id, code, message) })
	if survivable(err) {
		d.park(id)
		return nil
	}
	if err != nil {
		return err
	}
	d.sum.Refused++
	d.done = append(d.done, id)
	return nil
}

// maxMessage caps the message of a refusal, in bytes.
const maxMessage = 1000

// move copies a row inside SQLite: its bytes are kept, whatever they are, and
// never pass through this process.
func (d *drain) move(id int64, code, message string) error {
	n, err := d.tx.Exec(`INSERT INTO outbox_refused (tenant_id, subject_id, tool_name, idempotency_key, arguments,
		not_before, session_id, turn, traceparent, code, message, refused_at)
		SELECT tenant_id, subject_id, tool_name, idempotency_key, arguments,
		not_before, session_id, turn, traceparent, ?2, ?3, ?4 FROM outbox_intake WHERE id = ?1`,
		id, code, capped(message), d.tx.Now())
	if err == nil && n == 0 {
		err = ledger.ErrIgnored
	}
	if err != nil {
		return fmt.Errorf("refuse intake row: %w", err)
	}
	return nil
}

func (d *drain) finish() error {
	if err := d.each(`DELETE FROM outbox_intake WHERE id IN (SELECT value FROM json_each(?))`, d.done); err != nil {
		return fmt.Errorf("remove intake rows: %w", err)
	}
	if err := d.each(`UPDATE outbox_intake SET parked = 1 WHERE id IN (SELECT value FROM json_each(?))`, d.parked); err != nil {
		return fmt.Errorf("park intake rows: %w", err)
	}
	return nil
}

func (d *drain) each(query string, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	n, err := d.tx.Exec(query, string(list))
	if err == nil && n != int64(len(ids)) {
		err = ledger.ErrIgnored
	}
	return err
}
