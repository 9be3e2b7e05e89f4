package intake

import (
	"encoding/json"
	"fmt"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/ledger"
)

// Unpark lets Drain look again at parked rows whose tool exists now: up to n of
// them, the oldest first. It returns how many; fewer than n are all.
func Unpark(tx *ledger.Tx, reg *contract.Registry, n int) (int, error) {
	names, err := json.Marshal(reg.Names())
	if err != nil {
		return 0, fmt.Errorf("encode tools: %w", err)
	}
	rows, err := tx.Exec(`UPDATE outbox_intake SET parked = 0 WHERE id IN (SELECT id FROM outbox_intake
		WHERE parked = 1 AND tool_name IN (SELECT value FROM json_each(?)) ORDER BY id LIMIT ?)`, string(names), n)
	if err != nil {
		return 0, fmt.Errorf("unpark intake rows: %w", err)
	}
	return int(rows), nil
}

// Parked counts the rows that wait for their tool to be configured.
func Parked(q ledger.Querier) (int, error) {
	var n int
	if err := q.One(`SELECT count(*) FROM outbox_intake WHERE parked = 1`).Scan(&n); err != nil {
		return 0, fmt.Errorf("count parked rows: %w", err)
	}
	return n, nil
}
