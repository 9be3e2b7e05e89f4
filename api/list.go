package api

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// Item is one operation of a list: its answer without the result, and what an
// operator looks for.
type Item struct {
	Answer
	State      entry.State `json:"state"`
	Tenant     string      `json:"tenant_id"`
	Subject    string      `json:"subject_id"`
	AcceptedAt time.Time   `json:"accepted_at"`
}

// Page is a part of a list, in the order of acceptance.
type Page struct {
	Operations []Item `json:"operations"`
	Next       string `json:"next,omitzero"` // what the next page begins after; empty: this is the last
}

func (s *API) list(c *call) (reply, error) {
	f, err := c.filter()
	if err != nil {
		return reply{}, err
	}
	q := pageQuery{Filter: f, scopes: c.access.filter(c.peer)}
	if f.After != "" {
		op, err := s.findIf(c, f.After, s.reaches)
		if err != nil {
			return reply{}, err
		}
		q.after = op.id
	}
	var rows []row
	err = s.scan(c, func(v *ledger.View) error {
		rows, err = q.rows(v)
		return err
	})
	if err != nil {
		return reply{}, fmt.Errorf("list operations: %w", err)
	}
	p := pageOf(rows, f.Limit)
	p.Operations = slices.DeleteFunc(p.Operations, func(i Item) bool {
		return !s.sees(c, contract.Scope{Tenant: i.Tenant, Subject: i.Subject, Tool: i.Tool, Key: i.IdempotencyKey})
	})
	return ok(p)
}

// pageOf cuts the rows, of which there is one too many where there is a next page.
func pageOf(rows []row, limit int) Page {
	p := Page{Operations: make([]Item, 0, min(len(rows), limit))}
	for _, r := range rows[:min(len(rows), limit)] {
		p.Operations = append(p.Operations, r.item())
	}
	if len(rows) > limit {
		p.Next = rows[limit-1].ref
	}
	return p
}

// row is one operation of a list, without its result.
type row struct {
	operation
	acceptedAt time.Time
}

func (r row) item() Item {
	a := r.answer(judge(Asked, r.state, false))
	a.Delivery, a.Result = "", nil
	return Item{Answer: a, State: r.state, Tenant: r.tenant, Subject: r.subject, AcceptedAt: r.acceptedAt}
}

// pageQuery is a filter with what the caller may see and where the page begins.
type pageQuery struct {
	Filter
	scopes string // as Access.filter has it
	after  int64  // id
}

// The statements of a list: each for the states that its index holds. ?1 is what
// the caller may see, ?2 the id behind which the page begins, ?3 the tool, ?4 how
// many rows.
const (
	listed = `WITH scope AS MATERIALIZED
	(SELECT value ->> 0 AS tenant, value ->> 1 AS subject, value ->> 2 AS tool FROM json_each(IIF(?1 = '', '[]', ?1)))
	SELECT o.id, o.status_ref, o.tenant_id, o.subject_id, o.tool_name, o.idempotency_key, o.accepted_at,
	e.state, e.due_at, e.attempts, e.reason `

	visible = ` AND (?1 = '' OR EXISTS (SELECT 1 FROM scope WHERE tenant IN ('*', o.tenant_id)
	AND subject IN ('*', o.subject_id) AND tool IN ('', o.tool_name)))`

	// keptSQL: one of the states that stay; ?5.
	keptSQL = listed + `FROM outbox_entry AS e INDEXED BY outbox_entry_kept
	CROSS JOIN outbox_operation AS o ON o.id = e.operation_id
	WHERE e.state = ?5 AND (e.state = 'waiting' OR e.state = 'unknown' OR e.state = 'dead' OR e.state = 'discarded') AND e.operation_id > ?2
	AND (?3 = '' OR e.tool_name = ?3)` + visible + ` ORDER BY e.operation_id LIMIT ?4`

	// liveSQL: some of the states of what is worked on; ?5 as a JSON array. What
	// there is of it is looked through for the oldest, so little is read of each.
	liveSQL = listed + `FROM (SELECT l.operation_id AS id FROM outbox_entry AS l INDEXED BY outbox_entry_due
		WHERE l.due_at IS NOT NULL AND (?3 = '' OR l.tool_name = ?3)` + liveOf
	// toolSQL is liveSQL for one tool.
	toolSQL = listed + `FROM (SELECT l.operation_id AS id FROM outbox_entry AS l INDEXED BY outbox_entry_due
		WHERE l.due_at IS NOT NULL AND l.tool_name = ?3` + liveOf
	liveOf = ` AND l.operation_id > ?2 AND l.state IN (SELECT value FROM json_each(?5))
		AND (?1 = '' OR EXISTS (SELECT 1 FROM outbox_operation AS o WHERE o.id = l.operation_id` + visible + `))
		ORDER BY l.operation_id LIMIT ?4) AS page
	CROSS JOIN outbox_operation AS o ON o.id = page.id
	CROSS JOIN outbox_entry AS e ON e.operation_id = page.id ORDER BY page.id`

	// orderSQL: in the order of acceptance; ?5 is one state, or empty.
	orderSQL = listed + `FROM outbox_operation AS o CROSS JOIN outbox_entry AS e ON e.operation_id = o.id
	WHERE o.id > ?2 AND (?3 = '' OR o.tool_name = ?3)` + visible + ` AND (?5 = '' OR e.state = ?5)
	ORDER BY o.id LIMIT ?4`

	// scopeSQL: the one operation of a scope; ?5 to ?7 tenant, subject and key.
	scopeSQL = listed + `FROM outbox_operation AS o JOIN outbox_entry AS e ON e.operation_id = o.id
	WHERE o.tenant_id = ?5 AND o.subject_id = ?6 AND o.tool_name = ?3 AND o.idempotency_key = ?7
	AND o.id > ?2` + visible + ` LIMIT ?4`

	// keySQL: a key, whoever's, of any tool or of one; ?5 the key. It walks the index
	// of scopes.
	keySQL = listed + `FROM outbox_operation AS o CROSS JOIN outbox_entry AS e ON e.operation_id = o.id
	WHERE o.id IN (SELECT k.id FROM outbox_operation AS k
		WHERE (?3 = '' OR k.tool_name = ?3) AND k.idempotency_key = ?5 AND (?6 = '' OR k.tenant_id = ?6)
		AND (?7 = '' OR k.subject_id = ?7))
	AND o.id > ?2` + visible + ` ORDER BY o.id LIMIT ?4`
)

// rows reads up to one more than a page.
func (q pageQuery) rows(v ledger.Querier) (rows []row, err error) {
	read := func(query string, args ...any) error {
		args = append([]any{q.scopes, q.after, q.Tool, q.Limit + 1}, args...)
		return v.Each(func(r *ledger.Row) error {
			var x row
			err := r.Scan(&x.id, &x.ref, &x.tenant, &x.subject, &x.tool, &x.key, &x.acceptedAt,
				&x.state, &x.dueAt, &x.attempts, &x.reason)
			rows = append(rows, x)
			return err
		}, query, args...)
	}
	switch {
	case q.Key != "" && q.Tenant != "" && q.Subject != "" && q.Tool != "":
		err = read(scopeSQL, q.Tenant, q.Subject, q.Key)
	case q.Key != "":
		err = read(keySQL, q.Key, q.Tenant, q.Subject)
	case len(q.States) == 0:
		err = read(orderSQL, "")
	default:
		return q.merge(read, &rows)
	}
	if len(q.States) > 0 {
		rows = slices.DeleteFunc(rows, func(r row) bool { return !slices.Contains(q.States, r.state) })
	}
	return rows, err
}

// merge reads each group of states by its own index and puts them in order.
func (q pageQuery) merge(read func(string, ...any) error, rows *[]row) ([]row, error) {
	var live []entry.State
	for _, s := range entry.States {
		if !slices.Contains(q.States, s) {
			continue
		}
		switch s {
		case entry.Pending, entry.Claimed, entry.Sending:
			live = append(live, s)
		case entry.Delivered:
			if err := read(orderSQL, s); err != nil {
				return nil, err
			}
		default:
			if err := read(keptSQL, s); err != nil {
				return nil, err
			}
		}
	}
	if err := q.live(read, live); err != nil {
		return nil, err
	}
	slices.SortFunc(*rows, func(a, b row) int { return cmp.Compare(a.id, b.id) })
	return (*rows)[:min(len(*rows), q.Limit+1)], nil
}

func (q pageQuery) live(read func(string, ...any) error, states []entry.State) error {
	if len(states) == 0 {
		return nil
	}
	list, err := json.Marshal(states)
	if err != nil {
		return fmt.Errorf("encode states: %w", err)
	}
	if q.Tool != "" {
		return read(toolSQL, string(list))
	}
	return read(liveSQL, string(list))
}
