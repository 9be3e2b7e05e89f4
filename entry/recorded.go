package entry

import (
	"fmt"

	"github.com/outboxd/outboxd/ledger"
)

// Recorded reports whether the file has what came of an attempt or a question:
// its receipt, or its evidence. What came late does not count.
func Recorded(q ledger.Querier, h Held) (yes bool, err error) {
	err = q.One(`SELECT EXISTS (SELECT 1 FROM outbox_receipt WHERE operation_id = ?1 AND token = ?2)
		OR EXISTS (SELECT 1 FROM outbox_attempt WHERE operation_id = ?1 AND token = ?2
			AND (kind = 'outcome' OR kind = 'query' OR kind = 'blocked'))`, h.ID, h.Token).Scan(&yes)
	if err != nil {
		return false, fmt.Errorf("look for what was recorded: %w", err)
	}
	return yes, nil
}
