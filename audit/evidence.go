package audit

import (
	"fmt"
	"slices"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

type evidence struct {
	operation, attempt, round, token int64
	kind                             entry.Kind
}

func (ev *evidence) scan(r *ledger.Row) error {
	return r.Scan(&ev.operation, &ev.attempt, &ev.round, &ev.kind, &ev.token)
}

// evidence checks one row against the one before it, which it replaces in last.
// e is nil where the entry is missing. Late evidence comes out of turn: it is
// kept for what it says and moves nothing.
func (p *page) evidence(ref string, ev, last *evidence, e *entryRow) {
	find := func(code, what string) { p.report.find(code, ref, what) }
	if ev.token < 0 || ev.token > p.meta.lastToken {
		find(TokenInvalid, fmt.Sprintf("token %d of the evidence was never given out", ev.token))
	}
	kinds := []entry.Kind{entry.Outcome, entry.Lapse, entry.Late, entry.Query, entry.Blocked}
	if !slices.Contains(kinds, ev.kind) {
		find(EvidenceInvalid, "evidence of no known kind")
	}
	if ev.attempt < 1 || ev.round < 1 || e != nil && ev.round > e.round {
		find(EvidenceInvalid, "evidence of an attempt or round that was never made")
	}
	if ev.kind == entry.Late {
		return
	}
	if ev.operation == last.operation && ev.token < last.token {
		find(TokenInvalid, "tokens of the evidence fall")
	}
	*last = *ev
}
