package intake

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/ledger"
)

// intakeRow is a row of outbox_intake. The table enforces storage classes and
// nothing else: a text may be of any length and need not be UTF-8.
type intakeRow struct {
	id                         int64
	tenant, subject, tool, key text
	arguments, session, trace  text
	notBefore, turn            sql.NullInt64
}

// text is a column that is read only where it can be within its limit. A file
// may be encoded in UTF-16, which takes up to twice the bytes.
type text struct {
	value string
	bytes int64 // of the column; value is empty where they are too many
}

const rowSQL = `SELECT id,
	octet_length(tenant_id), IIF(octet_length(tenant_id) <= 510, tenant_id, ''),
	octet_length(subject_id), IIF(octet_length(subject_id) <= 510, subject_id, ''),
	octet_length(tool_name), IIF(octet_length(tool_name) <= 510, tool_name, ''),
	octet_length(idempotency_key), IIF(octet_length(idempotency_key) <= 510, idempotency_key, ''),
	octet_length(arguments), IIF(octet_length(arguments) <= 131072, arguments, ''),
	CAST(not_before AS INTEGER),
	COALESCE(octet_length(session_id), 0), IIF(octet_length(session_id) <= 510, session_id, ''),
	CAST(turn AS INTEGER),
	COALESCE(octet_length(traceparent), 0), IIF(octet_length(traceparent) <= 510, traceparent, '')
	FROM outbox_intake `

const (
	waitingSQL = rowSQL + `WHERE parked = 0 ORDER BY id LIMIT ?`
	oneSQL     = rowSQL + `WHERE parked = 0 AND id = ?`
)

// errEnough ends the reading of rows.
var errEnough = errors.New("enough")

// waiting reads the oldest rows, up to n of them and up to drainBytes. more
// says that it stopped at either limit.
func waiting(tx *ledger.Tx, n int) (rows []intakeRow, more bool, err error) {
	rows, more, err = rowsOf(tx, waitingSQL, n)
	return rows, more || len(rows) == n, err
}

// rowsOf reads rows until they are too many bytes; more says that they were.
func rowsOf(tx *ledger.Tx, query string, arg any) (rows []intakeRow, more bool, err error) {
	var bytes int64
	err = tx.Each(func(r *ledger.Row) error {
		var row intakeRow
		if err := row.scan(r); err != nil {
			return err
		}
		rows = append(rows, row)
		if bytes += row.bytes(); bytes >= drainBytes {
			return errEnough
		}
		return nil
	}, query, arg)
	if err != nil && !errors.Is(err, errEnough) {
		return nil, false, fmt.Errorf("read intake: %w", err)
	}
	return rows, err != nil, nil
}

func (r *intakeRow) scan(row *ledger.Row) error {
	return row.Scan(&r.id, &r.tenant.bytes, &r.tenant.value, &r.subject.bytes, &r.subject.value,
		&r.tool.bytes, &r.tool.value, &r.key.bytes, &r.key.value, &r.arguments.bytes, &r.arguments.value,
		&r.notBefore, &r.session.bytes, &r.session.value, &r.turn, &r.trace.bytes, &r.trace.value)
}

// bytes is what the row's texts weigh in the file, read or not.
func (r *intakeRow) bytes() int64 {
	return r.tenant.bytes + r.subject.bytes + r.tool.bytes + r.key.bytes + r.arguments.bytes + r.session.bytes + r.trace.bytes
}

// prepare checks the row as a request. What only a row can hold is refused
// first.
func (r *intakeRow) prepare(reg *contract.Registry) (*Prepared, error) {
	if err := r.invalid(); err != nil {
		return nil, err
	}
	q := Request{
		Scope:     contract.Scope{Tenant: r.tenant.value, Subject: r.subject.value, Tool: r.tool.value, Key: r.key.value},
		Arguments: []byte(r.arguments.value),
		Session:   r.session.value, Turn: r.turn.Int64, Trace: r.trace.value,
	}
	if r.notBefore.Valid {
		q.NotBefore = time.UnixMilli(r.notBefore.Int64)
	}
	return Prepare(reg, q)
}

func (r *intakeRow) invalid() error {
	var c checks
	c.unread("tenant_id", &r.tenant, contract.MaxNameBytes)
	c.unread("subject_id", &r.subject, contract.MaxNameBytes)
	c.unread("tool_name", &r.tool, contract.MaxNameBytes)
	c.unread("idempotency_key", &r.key, contract.MaxNameBytes)
	c.unread("arguments", &r.arguments, contract.MaxBytes)
	c.unread("session", &r.session, contract.MaxNameBytes)
	c.unread("traceparent", &r.trace, maxTrace)
	if ms := r.notBefore.Int64; ms < firstInstant || ms > lastInstant {
		c.refuse("not_before", "is out of range", "Unix milliseconds of the years 1970 to 9999")
	}
	if r.turn.Valid && r.turn.Int64 == 0 {
		c.refuse("turn", "is out of range", "1 to 2^53-1, or NULL")
	}
	return c.invalid()
}

// unread complains about a column that was too long to be read.
func (c *checks) unread(name string, t *text, limit int64) {
	if t.bytes > 0 && t.value == "" {
		c.refuse(name, fmt.Sprintf("has %d bytes", t.bytes), fmt.Sprintf("at most %d bytes", limit))
	}
}

// capped cuts a message at maxMessage bytes, between two characters.
func capped(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "..."
}
