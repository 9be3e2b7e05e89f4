package audit

import (
	"fmt"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// page is some operations with all that belongs to them: the rows with ids
// above after, up to upTo. The last page reaches beyond the last operation.
type page struct {
	*auditor
	after, upTo int64
	ops         []*contract.Operation

	entries  map[int64]*entryRow
	receipts map[int64]*receiptRow
}

func (p *page) run() error {
	if err := p.readEntries(); err != nil {
		return err
	}
	if err := p.readReceipts(); err != nil {
		return err
	}
	for _, op := range p.ops {
		p.one(op)
	}
	if err := p.approvals(); err != nil {
		return err
	}
	return p.attempts()
}

// one checks an operation, its entry and its receipt against each other. What
// belongs to no operation was found by its foreign key.
func (p *page) one(op *contract.Operation) {
	p.report.Checked.Operations++
	c := &check{report: p.report, meta: p.meta, op: op}
	c.operation()
	e, r := p.entries[op.ID], p.receipts[op.ID]
	if e == nil {
		c.find(EntryMissing, "operation has no entry")
	} else {
		c.entry(e)
	}
	delivered := e != nil && e.state == entry.Delivered
	switch {
	case r == nil && delivered:
		c.find(ReceiptMissing, "delivered without a receipt")
	case r != nil:
		if !delivered {
			c.find(ReceiptInvalid, "receipt of an entry that is not delivered")
		}
		c.receipt(r, e)
	}
}

// check compares the rows of one operation.
type check struct {
	report *Report
	meta   meta
	op     *contract.Operation
}

func (c *check) find(code, what string) { c.report.find(code, c.op.StatusRef, what) }

func (c *check) demand(ok bool, code, what string) {
	if !ok {
		c.find(code, what)
	}
}

// tokens are compared with what the file says it gave out.
func (c *check) issued(name string, token int64) {
	if token < 0 || token > c.meta.lastToken {
		c.find(TokenInvalid, fmt.Sprintf("%s %d was never given out", name, token))
	}
}

// attempts checks the evidence in the order in which it was written, without
// keeping it.
func (p *page) attempts() error {
	refs := make(map[int64]string, len(p.ops))
	for _, op := range p.ops {
		refs[op.ID] = op.StatusRef
	}
	var last evidence
	err := p.q.Each(func(r *ledger.Row) error {
		var ev evidence
		if err := ev.scan(r); err != nil {
			return err
		}
		p.report.Checked.Attempts++
		p.evidence(refs[ev.operation], &ev, &last, p.entries[ev.operation])
		return nil
	}, `SELECT operation_id, attempt, round, kind, token FROM outbox_attempt
		WHERE operation_id > ? AND operation_id <= ? ORDER BY operation_id, id`, p.after, p.upTo)
	if err != nil {
		return fmt.Errorf("read evidence: %w", err)
	}
	return nil
}
