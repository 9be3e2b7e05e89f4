package intake

import (
	"fmt"

	"github.com/outboxd/outboxd/ledger"
)

// Stock is what stands in outbox_intake and outbox_refused.
type Stock struct {
	Waiting int64        // rows that the next drains take in
	Parked  int64        // rows for tools that are not configured
	Refused int64        // rows that became a refusal, and are not purged yet
	Tools   []ParkedTool // of Parked, the largest first, at most 100
}

// ParkedTool is how many rows wait for one tool to be configured.
type ParkedTool struct {
	Name string // as the application wrote it, at most 255 characters of it
	Rows int64
}

// Count looks at both tables.
func Count(q ledger.Querier) (s Stock, err error) {
	err = q.One(`SELECT (SELECT count(*) FROM outbox_intake WHERE parked = 0), (SELECT count(*) FROM outbox_intake WHERE parked = 1),
		(SELECT count(*) FROM outbox_refused)`).Scan(&s.Waiting, &s.Parked, &s.Refused)
	if err != nil {
		return s, fmt.Errorf("count intake rows: %w", err)
	}
	if s.Parked == 0 {
		return s, nil
	}
	err = q.Each(func(r *ledger.Row) error {
		var t ParkedTool
		err := r.Scan(&t.Name, &t.Rows)
		s.Tools = append(s.Tools, t)
		return err
	}, `SELECT substr(tool_name, 1, 255) AS name, count(*) AS n FROM outbox_intake WHERE parked = 1
		GROUP BY name ORDER BY n DESC, name LIMIT 100`)
	if err != nil {
		return s, fmt.Errorf("count parked rows by tool: %w", err)
	}
	return s, nil
}
