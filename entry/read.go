package entry

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

const columns = `operation_id, tool_name, state, due_at, COALESCE(owner, 0), COALESCE(token, 0), claim_token,
	last_sent_at, over_at, unproven_since, attempts, failures, lapses, queries, suspect, round, round_at, round_excused`

func (d *Due) scan(r *ledger.Row) error {
	var excused int64
	err := r.Scan(&d.ID, &d.Tool, &d.State, &d.DueAt, &d.Owner, &d.Token, &d.ClaimToken,
		&d.LastSentAt, &d.OverAt, &d.UnprovenSince, &d.Attempts, &d.Failures, &d.Lapses, &d.Queries,
		&d.Suspect, &d.Round, &d.RoundAt, &excused)
	d.RoundExcused = time.Duration(excused) * time.Millisecond
	return err
}

// The + keeps SQLite from preparing the statement again for every other limit.
const probeSQL = `SELECT ` + columns + ` FROM outbox_entry WHERE tool_name = ? AND due_at <= ?
	AND (token IS NULL OR owner <> ?) AND (suspect = 0 OR state <> 'pending' OR ?) ORDER BY due_at LIMIT +?`

// Probe lists up to n entries of a tool that are due, the longest due first. It
// leaves out what this process holds itself and, unless they are asked for,
// suspects that would be attempted.
func Probe(tx *ledger.Tx, tool string, n int, suspects bool) ([]Due, error) {
	return list(tx, probeSQL, tool, tx.Now(), tx.Epoch(), suspects, n)
}

const comingSQL = `SELECT operation_id FROM outbox_entry WHERE tool_name = ? AND due_at <= ? ORDER BY due_at LIMIT +?`

// Coming appends the ids of up to n entries of a tool that Probe is likely to list
// next.
func Coming(q ledger.Querier, ids []int64, tool string, now time.Time, n int) ([]int64, error) {
	err := q.Each(func(r *ledger.Row) error {
		var id int64
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	}, comingSQL, tool, now, n)
	return ids, err
}

const nextDueSQL = `SELECT due_at FROM outbox_entry WHERE tool_name = ? AND due_at > ? ORDER BY due_at LIMIT 1`

// NextDue is when the next entry of a tool is due; zero: none is.
func NextDue(q ledger.Querier, tool string, after time.Time) (time.Time, error) {
	var at time.Time
	err := q.One(nextDueSQL, tool, after).Scan(&at)
	if errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, nil
	}
	return at, err
}

const leasedSQL = `SELECT ` + columns + ` FROM outbox_entry INDEXED BY outbox_entry_due
	WHERE due_at IS NOT NULL AND token IS NOT NULL`

// Leased lists every entry that somebody holds.
func Leased(q ledger.Querier) ([]Due, error) {
	return list(q, leasedSQL)
}

// Get is the entry of one operation, or ErrNotFound.
func Get(q ledger.Querier, id int64) (Due, error) {
	rows, err := list(q, `SELECT `+columns+` FROM outbox_entry WHERE operation_id = ?`, id)
	if err != nil {
		return Due{}, err
	}
	if len(rows) == 0 {
		return Due{}, ErrNotFound
	}
	return rows[0], nil
}

func list(q ledger.Querier, query string, args ...any) ([]Due, error) {
	var due []Due
	err := q.Each(func(r *ledger.Row) error {
		var d Due
		if err := d.scan(r); err != nil {
			return err
		}
		due = append(due, d)
		return nil
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read entries: %w", err)
	}
	return due, nil
}

func none(err error, e Event) error {
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return ErrStale
	case err != nil:
		return fmt.Errorf("move entry on %s: %w", e, err)
	}
	return nil
}
