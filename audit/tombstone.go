package audit

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/outboxd/outboxd/contract"
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
	return a.buried()
}

// buried checks that each tombstone could have been that of an operation.
func (a *auditor) buried() error {
	err := a.q.Each(func(r *ledger.Row) error {
		var s contract.Scope
		var ref string
		if err := r.Scan(&s.Tenant, &s.Subject, &s.Tool, &s.Key, &ref); err != nil {
			return err
		}
		id, err := uuid.Parse(ref)
		if err != nil || id.Version() != 7 || id.String() != ref {
			a.report.find(TombstoneInvalid, "", "status_ref is no UUIDv7")
			return nil
		}
		for _, err := range []error{contract.CheckName("tenant_id", s.Tenant), contract.CheckName("subject_id", s.Subject),
			contract.CheckName("tool_name", s.Tool), contract.CheckKey(s.Key)} {
			if err != nil {
				a.report.find(TombstoneInvalid, ref, err.Error())
			}
		}
		return nil
	}, `SELECT tenant_id, subject_id, tool_name, idempotency_key, status_ref FROM outbox_tombstone`)
	if err != nil {
		return fmt.Errorf("read tombstones: %w", err)
	}
	return nil
}
