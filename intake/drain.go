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
	Parked   int  // of a tool that is not configured; kept until Unpark
	More     bool // there may be more rows to look at
}

// drainBytes bounds what one Drain reads, or moves.
const drainBytes = 4 << 20

// Drain makes operations or refusals of up to n rows of outbox_intake, the
// oldest first, in the transaction that it is given: all of them or none. A row
// with a mistake never stops another one. More than some 500 rows make a batch
// that heartbeats wait for.
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
		d.sum.Parked++
		d.parked = append(d.parked, r.id)
		return nil
	case errors.As(err, &invalid):
		return d.refuse(r, invalid.Code, invalid.Error())
	case err != nil:
		return err
	}
	return d.accept(r, p)
}

func (d *drain) accept(r *intakeRow, p *Prepared) error {
	a, err := p.Accept(d.tx)
	var conflict *Conflict
	switch {
	case errors.As(err, &conflict):
		return d.refuse(r, KeyConflict, conflict.Error())
	case errors.Is(err, errNoEntry):
		return d.refuse(r, KeyConflict, err.Error())
	case err != nil:
		return err
	case a.New:
		d.sum.Accepted++
	default:
		d.sum.Repeated++
	}
	d.done = append(d.done, r.id)
	return nil
}

// maxMessage caps the message of a refusal, in bytes.
const maxMessage = 1000

// refuse moves a row to outbox_refused inside SQLite: its bytes are kept,
// whatever they are, and never pass through this process.
func (d *drain) refuse(r *intakeRow, code, message string) error {
	d.sum.Refused++
	d.done = append(d.done, r.id)
	_, err := d.tx.Exec(`INSERT INTO outbox_refused (tenant_id, subject_id, tool_name, idempotency_key, arguments,
		not_before, session_id, turn, traceparent, code, message, refused_at)
		SELECT tenant_id, subject_id, tool_name, idempotency_key, arguments,
		not_before, session_id, turn, traceparent, ?2, ?3, ?4 FROM outbox_intake WHERE id = ?1`,
		r.id, code, capped(message), d.tx.Now())
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
	_, err = d.tx.Exec(query, string(list))
	return err
}
