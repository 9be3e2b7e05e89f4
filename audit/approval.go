package audit

import (
	"bytes"
	"database/sql"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/ledger"
)

// approvals computes the digest of each approval of the page again.
func (p *page) approvals() error {
	ops := make(map[int64]*contract.Operation, len(p.ops))
	for _, op := range p.ops {
		ops[op.ID] = op
	}
	err := p.q.Each(func(r *ledger.Row) error {
		var operation, consumed int64
		var a contract.Approval
		var expires sql.NullInt64
		var sum []byte
		if err := r.Scan(&operation, &a.ID, &a.Approver, &a.ApprovedAt, &expires, &sum, &consumed); err != nil {
			return err
		}
		op := ops[operation]
		if op == nil {
			return nil // its foreign key was found to be broken
		}
		if expires.Valid {
			a.ExpiresAt = time.UnixMilli(expires.Int64).UTC()
		}
		c := &check{report: p.report, meta: p.meta, op: op}
		digest := a.Digest(op)
		c.demand(bytes.Equal(sum, digest[:]), DigestMismatch, "approval_sha256")
		c.demand(a.Approver != op.Scope.Subject, OperationInvalid, "approved by its subject")
		c.demand(a.Valid(time.UnixMilli(consumed)), OperationInvalid, "approval consumed while it did not hold")
		return nil
	}, `SELECT operation_id, approval_id, approver, approved_at, expires_at, approval_sha256, consumed_at FROM outbox_approval
		WHERE operation_id > ? AND operation_id <= ?`, p.after, p.upTo)
	if err != nil {
		return fmt.Errorf("read approvals: %w", err)
	}
	return nil
}
