// Package audit recomputes everything that the file claims, in one read
// snapshot: that each operation has its entry, each delivered entry its one
// receipt, that arguments, results and every digest are what they were, that
// tokens rise and that no row is in a state that the state machine cannot reach.
//
// It promises to look at our own tables only, to change nothing, and to need the
// same memory for a million operations as for one. It trusts neither the
// constraints nor the indexes: a file can be edited with both switched off.
//
// What to do about a finding is left to a person.
package audit

import (
	"context"
	"fmt"
	"math"

	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// Finding is one thing that cannot be as the file says it is.
type Finding struct {
	Code      string `json:"code"`
	StatusRef string `json:"status_ref,omitempty"` // empty: of no operation
	What      string `json:"what"`                 // names and numbers, never a payload
}

// The codes of findings.
const (
	StoreContract    = "STORE_CONTRACT_ERROR" // meta, or a table as SQLite checks it
	EntryMissing     = "ENTRY_MISSING"
	OperationMissing = "OPERATION_MISSING"
	OperationInvalid = "OPERATION_INVALID" // could never have been accepted
	DigestMismatch   = "DIGEST_MISMATCH"
	StateInvalid     = "STATE_INVALID"
	ReasonMissing    = "REASON_MISSING"
	SentTwice        = "SENT_TWICE" // may have been, though its class forbids it
	ReceiptMissing   = "RECEIPT_MISSING"
	ReceiptInvalid   = "RECEIPT_INVALID"
	TokenInvalid     = "TOKEN_INVALID"
	TombstoneInvalid = "TOMBSTONE_INVALID"
	EvidenceInvalid  = "EVIDENCE_INVALID"
)

// Report is what an audit found.
type Report struct {
	Findings []Finding `json:"findings"` // the first MaxFindings
	Total    int       `json:"total"`    // of findings
	Checked  Checked   `json:"checked"`
}

// Checked counts what was looked at.
type Checked struct {
	Operations int `json:"operations"`
	Entries    int `json:"entries"`
	Receipts   int `json:"receipts"`
	Attempts   int `json:"attempts"`
}

// MaxFindings is how many findings a Report lists.
const MaxFindings = 1000

// Clean reports whether nothing was found. Unknown and dead entries are legal.
func (r *Report) Clean() bool { return r.Total == 0 }

func (r *Report) find(code, ref, what string) {
	if r.Total++; len(r.Findings) < MaxFindings {
		r.Findings = append(r.Findings, Finding{Code: code, StatusRef: ref, What: what})
	}
}

// Run audits the file. An error means that it could not be read to the end.
func Run(ctx context.Context, l *ledger.Ledger) (*Report, error) {
	a := &auditor{report: &Report{Findings: []Finding{}}}
	if err := l.Read(ctx, a.run); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return a.report, nil
}

// pageSize is how many operations are in memory at a time.
const pageSize = 200

// auditor is one run over one snapshot.
type auditor struct {
	q      *ledger.View
	report *Report
	meta   meta
}

func (a *auditor) run(v *ledger.View) error {
	a.q = v
	if err := a.store(); err != nil {
		return err
	}
	after := int64(math.MinInt64)
	for {
		ops, err := intake.After(v, after, pageSize)
		if err != nil {
			return err
		}
		p := page{auditor: a, after: after, upTo: math.MaxInt64, ops: ops}
		if len(ops) == pageSize {
			p.upTo = ops[len(ops)-1].ID
		}
		if err := p.run(); err != nil {
			return err
		}
		if len(ops) < pageSize {
			return nil
		}
		after = p.upTo
	}
}
