package audit

import (
	"bytes"
	"fmt"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

type receiptRow struct {
	operation      int64
	result         []byte // nil: none
	sum, binding   []byte
	reference      string
	attempt, token int64
	how            entry.How
}

func (p *page) readReceipts() error {
	p.receipts = make(map[int64]*receiptRow, len(p.ops))
	err := p.q.Each(func(r *ledger.Row) error {
		v := new(receiptRow)
		if err := r.Scan(&v.operation, &v.result, &v.sum, &v.binding, &v.reference, &v.attempt, &v.token, &v.how); err != nil {
			return err
		}
		p.report.Checked.Receipts++
		p.receipts[v.operation] = v
		return nil
	}, `SELECT operation_id, result, result_sha256, call_binding_sha256, reference, attempt, token, how
		FROM outbox_receipt WHERE operation_id > ? AND operation_id <= ?`, p.after, p.upTo)
	if err != nil {
		return fmt.Errorf("read receipts: %w", err)
	}
	return nil
}

// receipt computes the digests again. e is nil where the entry is missing.
func (c *check) receipt(r *receiptRow, e *entryRow) {
	c.demand(r.result == nil || c.canonical(r.result), ReceiptInvalid, "result is not canonical JSON")
	result := contract.ResultDigest(r.result)
	c.demand(bytes.Equal(r.sum, result[:]), DigestMismatch, "result_sha256")
	binding := c.op.Bind(result, r.reference).Digest()
	c.demand(bytes.Equal(r.binding, binding[:]), DigestMismatch, "call_binding_sha256")
	c.issued("token of the receipt", r.token)
	if e != nil {
		first := int64(1)
		if r.how != entry.Fresh && e.round > 1 {
			first = 0 // of an older copy of the file, which does not know the attempt
		}
		c.demand(r.attempt >= first && r.attempt <= e.attempts, ReceiptInvalid, "receipt of an attempt that was never made")
		c.proof(r, e)
	}
}

// proof: a fresh receipt comes from the last claim, a reconciled one from a
// question asked after it.
func (c *check) proof(r *receiptRow, e *entryRow) {
	switch r.how {
	case entry.Fresh:
		c.demand(r.token == e.claimToken && r.token > 0, TokenInvalid, "receipt under another token than the last claim")
	case entry.Reconciled:
		c.demand(r.token > e.claimToken, TokenInvalid, "receipt under a question that is not newer than the attempt")
	case entry.Resolved:
	default:
		c.find(ReceiptInvalid, "receipt does not say how it came about")
	}
}
