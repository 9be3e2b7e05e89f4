package audit

import (
	"fmt"

	"github.com/outboxd/outboxd/ledger"
)

// tombstones checks that a key has an operation or a tombstone, never both: a
// tombstone is written in the commit that removes the operation, and no operation
// is accepted beside one. Whether its digest is that of the request nothing in the
// file tells any more.
func (a *auditor) tombstones() error {
	err := a.q.Each(func(r *ledger.Row) error {
		var ref string
		if err := r.Scan(&ref); err != nil {
			return err
		}
		a.report.find(TombstoneInvalid, ref, "the key of a purged operation has an operation")
		return nil
	}, `SELECT o.status_ref FROM outbox_tombstone t JOIN outbox_operation o
		ON o.tenant_id = t.tenant_id AND o.subject_id = t.subject_id AND o.tool_name = t.tool_name AND o.idempotency_key = t.idempotency_key
		UNION ALL
		SELECT o.status_ref FROM outbox_tombstone t JOIN outbox_operation o ON o.status_ref = t.status_ref`)
	if err != nil {
		return fmt.Errorf("check tombstones: %w", err)
	}
	return nil
}
