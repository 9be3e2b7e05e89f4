package deadletter

import (
	"encoding/json"
	"fmt"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// Forget deletes the reviews of entries that have been forgotten.
func Forget(tx *ledger.Tx, gone []entry.Ended) error {
	list, err := json.Marshal(gone)
	if err != nil {
		return fmt.Errorf("encode entries: %w", err)
	}
	_, err = tx.Exec(`DELETE FROM outbox_review WHERE operation_id IN (SELECT json_extract(value, '$.ID') FROM json_each(?))`, string(list))
	if err != nil {
		return fmt.Errorf("forget reviews: %w", err)
	}
	return nil
}
