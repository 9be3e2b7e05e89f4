package audit

import (
	"database/sql"
	"fmt"
	"slices"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// entryRow is a row of outbox_entry as it stands, NULL and all.
type entryRow struct {
	operation                           int64
	tool                                string
	state                               entry.State
	due, owner, token                   sql.NullInt64
	claimToken                          int64
	lastSent, unprovenSince, unproven   sql.NullInt64 // unproven: the token of the send
	attempts, failures, lapses, queries int64
	round                               int64
	reason                              string
}

func (p *page) readEntries() error {
	p.entries = make(map[int64]*entryRow, len(p.ops))
	err := p.q.Each(func(r *ledger.Row) error {
		e := new(entryRow)
		if err := r.Scan(&e.operation, &e.tool, &e.state, &e.due, &e.owner, &e.token, &e.claimToken, &e.lastSent,
			&e.unprovenSince, &e.unproven, &e.attempts, &e.failures, &e.lapses, &e.queries, &e.round, &e.reason); err != nil {
			return err
		}
		p.report.Checked.Entries++
		p.entries[e.operation] = e
		return nil
	}, `SELECT operation_id, tool_name, state, due_at, owner, token, claim_token, last_sent_at,
		unproven_since, unproven_by, attempts, failures, lapses, queries, round, reason
		FROM outbox_entry WHERE operation_id > ? AND operation_id <= ?`, p.after, p.upTo)
	if err != nil {
		return fmt.Errorf("read entries: %w", err)
	}
	return nil
}

func (c *check) entry(e *entryRow) {
	c.demand(e.tool == c.op.Scope.Tool, StateInvalid, "entry names another tool than its operation")
	c.demand(slices.Contains(entry.States, e.state), StateInvalid, "no such state")
	c.demand(e.owner.Valid == e.token.Valid, StateInvalid, "owner without token, or token without owner")
	c.demand(e.unprovenSince.Valid == e.unproven.Valid, StateInvalid, "an unproven send without its token, or a token without its send")
	c.demand(min(e.attempts, e.failures, e.lapses, e.queries) >= 0 && e.round >= 1, StateInvalid, "a counter is out of range")
	c.state(e)
	c.reason(e)
	c.holder(e)
	c.sends(e)
}

// state says for each state what the other columns must be.
func (c *check) state(e *entryRow) {
	leased, due := e.token.Valid, e.due.Valid
	claimed := leased && e.token.Int64 == e.claimToken && e.attempts >= 1
	ok := true
	switch e.state {
	case entry.Pending:
		ok = due && !leased
	case entry.Claimed:
		ok = due && claimed
	case entry.Sending:
		ok = due && claimed && e.unprovenSince.Valid && e.lastSent.Valid
	case entry.Waiting:
		ok = !leased
	case entry.Unknown:
		ok = e.unprovenSince.Valid && (due || !leased)
	case entry.Dead:
		ok = !due && !leased && !e.unprovenSince.Valid
	case entry.Delivered, entry.Discarded:
		ok = !due && !leased
	}
	c.demand(ok, StateInvalid, fmt.Sprintf("entry is %q, which its other columns contradict", string(e.state)))
}

// reason: what waits for a person says why.
func (c *check) reason(e *entryRow) {
	held := e.state == entry.Unknown && !e.due.Valid && !e.token.Valid
	c.demand(e.reason != "" || e.state != entry.Dead && !held, ReasonMissing, "given up or held without a reason")
}

func (c *check) holder(e *entryRow) {
	c.issued("claim_token", e.claimToken)
	c.issued("token", e.token.Int64)
	c.issued("unproven_by", e.unproven.Int64)
	if e.owner.Valid && (e.owner.Int64 < 1 || e.owner.Int64 > c.meta.epoch) {
		c.find(TokenInvalid, fmt.Sprintf("owner %d never started", e.owner.Int64))
	}
	if e.state == entry.Unknown && e.token.Valid {
		c.demand(e.token.Int64 > e.claimToken, TokenInvalid, "the question is not newer than the attempt")
	}
}

// sends: in its first round an operation that must not be sent twice goes on
// only when every earlier send is void. A later round is a person's decision.
func (c *check) sends(e *entryRow) {
	again := c.op.Effect == entry.Idempotent || c.op.Effect == entry.Local
	if again || e.state.Terminal() || e.round > 1 || !e.unprovenSince.Valid {
		return
	}
	c.demand(e.attempts >= 1, StateInvalid, "something was sent without an attempt")
	resend := e.state == entry.Pending || e.unproven.Int64 != e.claimToken
	c.demand(!resend, SentTwice, fmt.Sprintf("%s, and an earlier send is unproven", c.op.Effect))
}
