package poller

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/outboxd/outboxd/hook"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// ErrUnknownTool says that no such tool is configured.
var ErrUnknownTool = errors.New("no such tool is configured")

// toolRow is what outbox_tool says of one tool.
type toolRow struct {
	reason   string
	pausedAt time.Time // zero: not paused
	excused  time.Duration

	breakerUntil time.Time // zero: closed
}

// enter adds the tools that the table lacks.
func enter(tx *ledger.Tx, names []string) error {
	for _, name := range names {
		if _, err := tx.Exec(`INSERT INTO outbox_tool (tool_name) VALUES (?) ON CONFLICT DO NOTHING`, name); err != nil {
			return err
		}
	}
	return nil
}

// down is the time since the last claim, whose token is its instant in
// microseconds: nothing failed in it, so no entry ages by it. It is negative when
// the clock was ahead then.
func down(q ledger.Querier, now time.Time) (time.Duration, error) {
	var last int64
	err := q.One(`SELECT last_token FROM outbox_meta WHERE id = 1`).Scan(&last)
	if err != nil || last == 0 {
		return 0, err
	}
	return now.Sub(time.UnixMicro(last)), nil
}

// excuse credits the tools that are not paused: those are when they are resumed.
func excuse(tx *ledger.Tx, by time.Duration) error {
	_, err := tx.Exec(`UPDATE outbox_tool SET excused_ms = excused_ms + ? WHERE paused = 0`, by)
	return err
}

func read(q ledger.Querier, rows map[string]toolRow) error {
	return q.Each(func(r *ledger.Row) error {
		var name string
		var row toolRow
		var excused int64
		err := r.Scan(&name, &row.reason, &row.pausedAt, &excused, &row.breakerUntil)
		row.excused = time.Duration(excused) * time.Millisecond
		rows[name] = row
		return err
	}, `SELECT tool_name, pause_reason, paused_at, excused_ms, breaker_until FROM outbox_tool`)
}

// excused is the paused and down time of one tool, in all. As at accept, a pause
// that still lasts counts up to now.
func excused(tx *ledger.Tx, tool string) (time.Duration, error) {
	var ms int64
	err := tx.One(`SELECT excused_ms + IIF(paused, MAX(0, ? - paused_at), 0) FROM outbox_tool WHERE tool_name = ?`,
		tx.Now(), tool).Scan(&ms)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return time.Duration(ms) * time.Millisecond, err
}

// ToolStatus is one tool as an operator sees it.
type ToolStatus struct {
	Name        string
	Configured  bool
	Paused      bool
	PauseReason string
	PausedAt    time.Time
	Breaker     time.Time // until when nothing starts, and then one attempt at a time; zero: it is closed
}

// Tools lists every tool that is configured or has a past in the file.
func (p *Poller) Tools(ctx context.Context) ([]ToolStatus, error) {
	rows := map[string]toolRow{}
	if err := p.l.Read(ctx, func(v *ledger.View) error { return read(v, rows) }); err != nil {
		return nil, fmt.Errorf("read tools: %w", err)
	}
	for _, name := range p.Work().Registry.Names() {
		if _, ok := rows[name]; !ok {
			rows[name] = toolRow{}
		}
	}
	var list []ToolStatus
	for name, row := range rows {
		_, configured := p.Work().Registry.Lookup(name)
		list = append(list, ToolStatus{Name: name, Configured: configured, Paused: !row.pausedAt.IsZero(),
			PauseReason: row.reason, PausedAt: row.pausedAt, Breaker: row.breakerUntil})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, nil
}

// Pause stops claiming for a tool until Resume, also over restarts. What runs
// goes on. Pausing a paused tool keeps the first reason.
func (p *Poller) Pause(ctx context.Context, tool, reason string) error {
	return p.control(ctx, tool, func(tx *ledger.Tx) error { return p.pause(tx, tool, reason) })
}

func (p *Poller) pause(tx *ledger.Tx, tool, reason string) error {
	n, err := tx.Exec(`INSERT INTO outbox_tool (tool_name, paused, pause_reason, paused_at) VALUES (?1, 1, ?2, ?3)
		ON CONFLICT (tool_name) DO UPDATE SET paused = 1, pause_reason = excluded.pause_reason, paused_at = excluded.paused_at
		WHERE paused = 0`, tool, reason, tx.Now())
	if err != nil || n == 0 {
		return err
	}
	return p.Work().Hook.Tool(tx, hook.Paused, tool, reason)
}

// Resume lets a paused tool go on. The time in which it was paused does not age
// its entries.
func (p *Poller) Resume(ctx context.Context, tool string) error {
	return p.control(ctx, tool, func(tx *ledger.Tx) error {
		_, err := tx.Exec(`UPDATE outbox_tool SET paused = 0, pause_reason = NULL,
			excused_ms = excused_ms + MAX(0, ?2 - paused_at), paused_at = NULL WHERE tool_name = ?1 AND paused = 1`, tool, tx.Now())
		return err
	})
}

func (p *Poller) control(ctx context.Context, tool string, fn func(*ledger.Tx) error) error {
	if _, ok := p.Work().Registry.Lookup(tool); !ok {
		return ErrUnknownTool
	}
	if err := p.l.Write(ctx, fn); err != nil {
		return fmt.Errorf("control tool: %w", err)
	}
	p.Wake()
	return nil
}

// Swap puts a new snapshot in the place of the old one, or changes nothing. What
// runs goes on with the old one.
func (p *Poller) Swap(ctx context.Context, w *Work) error {
	err := p.l.Write(ctx, func(tx *ledger.Tx) error { return enter(tx, w.Registry.Names()) })
	if err != nil {
		return fmt.Errorf("enter tools: %w", err)
	}
	p.work.Store(w)
	p.Wake()
	return nil
}

// unparkBatch is how many intake rows one closure looks at again.
const unparkBatch = 500

// unpark has what applications wrote for tools that exist now looked at again,
// once for each snapshot.
func (f *finder) unpark(tx *ledger.Tx, w *Work) error {
	if f.unparked = f.p.unparked; f.unparked == w {
		return nil
	}
	n, err := intake.Unpark(tx, w.Registry, unparkBatch)
	if err != nil {
		return fmt.Errorf("look at parked rows again: %w", err)
	}
	if n < unparkBatch {
		f.unparked = w
	}
	return nil
}
