package api

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/poller"
)

// operation is what is shown of one.
type operation struct {
	id              int64
	ref             string
	tenant, subject string
	tool, key       string
	state           entry.State
	dueAt           time.Time
	attempts        int
	reason          string
	result          []byte // canonical JSON; nil: none
	how             entry.How
	parent          string
	children        []string
	sealed          *contract.Package // of a delivered one
}

// answer is the operation as its state's verdict has it.
func (op operation) answer(v verdict) Answer {
	a := Answer{
		StatusRef: op.ref, Status: op.state.Status(), Gate: v.gate, Code: v.code,
		Tool: op.tool, IdempotencyKey: op.key, Attempts: op.attempts, DueAt: op.dueAt,
		Parent: op.parent, Children: op.children,
	}
	switch op.state {
	case entry.Delivered:
		a.Delivery, a.Result, a.Package = "local_replay", op.result, op.sealed
		if op.result == nil {
			a.Result = []byte("null")
		}
	case entry.Dead, entry.Unknown, entry.Waiting, entry.Discarded:
		a.Reason = op.reason
		if op.state == entry.Waiting && op.reason == "" {
			a.Reason = "approval_required"
		}
	}
	return a
}

// asked answers a status or a reconcile.
func asked(op operation) (reply, error) {
	v := judge(Asked, op.state, false)
	a := op.answer(v)
	if op.state == entry.Delivered && op.how != entry.Fresh {
		a.Delivery = string(op.how)
	}
	return reply{v.http, a}, nil
}

// settled: nothing more happens to the operation by itself.
func (op operation) settled() bool {
	switch op.state {
	case entry.Delivered, entry.Dead, entry.Discarded, entry.Waiting:
		return true
	case entry.Unknown:
		return op.dueAt.IsZero()
	}
	return false
}

const statusSQL = `SELECT o.id, o.status_ref, o.tenant_id, o.subject_id, o.tool_name, o.idempotency_key,
	e.state, e.due_at, e.attempts, e.reason, r.result, r.how, o.parent,
	(SELECT group_concat(status_ref) FROM (SELECT status_ref FROM outbox_operation WHERE parent = o.status_ref ORDER BY id LIMIT 100))
	FROM outbox_operation AS o JOIN outbox_entry AS e ON e.operation_id = o.id
	LEFT JOIN outbox_receipt AS r ON r.operation_id = o.id
	WHERE o.status_ref = ?`

// find reads the operation of the path, or of ref, if the caller may see it. What
// is not there and what is not the caller's are one answer.
func (s *API) find(c *call, ref string) (operation, error) { return s.findIf(c, ref, s.sees) }

func (s *API) findIf(c *call, ref string, may func(*call, contract.Scope) bool) (op operation, err error) {
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	var children string
	err = s.d.Ledger.Read(ctx, func(v *ledger.View) error {
		err := v.One(statusSQL, ref).Scan(&op.id, &op.ref, &op.tenant, &op.subject, &op.tool, &op.key,
			&op.state, &op.dueAt, &op.attempts, &op.reason, &op.result, &op.how, &op.parent, &children)
		if err != nil {
			return err
		}
		return op.seal(v)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return op, problem("NOT_FOUND")
	case err != nil:
		return op, fmt.Errorf("read operation: %w", err)
	case !may(c, contract.Scope{Tenant: op.tenant, Subject: op.subject, Tool: op.tool, Key: op.key}):
		return op, problem("NOT_FOUND")
	}
	if children != "" {
		op.children = strings.Split(children, ",")
	}
	return op, op.intact()
}

// MaxWait is how long a caller may wait for an operation to settle.
const MaxWait = time.Hour

// wait is the query's wait; zero: answer at once.
func (c *call) wait(beside ...string) (time.Duration, error) {
	q, err := c.query(append(beside, "wait")...)
	if err != nil || q.Get("wait") == "" {
		return 0, err
	}
	d, err := time.ParseDuration(q.Get("wait"))
	if err != nil || d < 0 || d > MaxWait {
		return 0, invalid(InputError{"wait", "is no duration, or out of range", "0s to 1h, with a unit"})
	}
	return d, nil
}

func (s *API) status(c *call) (reply, error) {
	wait, err := c.wait()
	if err != nil {
		return reply{}, err
	}
	op, err := s.await(c, c.PathValue("ref"), wait)
	if err != nil {
		return reply{}, err
	}
	return asked(op)
}

// How often a caller that waits looks by itself: the bell rings for what this
// process does, another process may settle too.
const (
	firstLook = 50 * time.Millisecond
	lastLook  = 500 * time.Millisecond
)

// await reads the operation, at the latest after limit and at once when it
// settles, the caller goes, or the server stops.
func (s *API) await(c *call, ref string, limit time.Duration) (operation, error) {
	op, err := s.find(c, ref)
	if err != nil || limit == 0 || op.settled() {
		return op, err
	}
	c.allow(limit)
	bell, leave := s.bell(ref)
	defer leave()
	over := time.NewTimer(limit)
	defer over.Stop()
	for pause, last := firstLook, false; ; pause = min(2*pause, lastLook) {
		if op, err = s.find(c, ref); err != nil || last || op.settled() {
			return op, err
		}
		select {
		case <-bell:
		case <-time.After(pause):
		case <-over.C:
			last = true
		case <-stopping(c.Context()):
			last = true
		case <-c.Context().Done():
			return op, c.Context().Err()
		}
	}
}

func (s *API) reconcile(c *call) (reply, error) {
	var expected Expected
	if err := c.body(&expected); err != nil {
		return reply{}, err
	}
	op, err := s.find(c, c.PathValue("ref"))
	if err != nil {
		return reply{}, err
	}
	if err := s.expects(c, op.ref, &expected); err != nil {
		return reply{}, err
	}
	if op.state == entry.Unknown {
		if err := s.mayAsk(c, op); err != nil {
			return reply{}, err
		}
		if err := s.question(c, op); err != nil {
			return reply{}, err
		}
		if op, err = s.find(c, op.ref); err != nil {
			return reply{}, err
		}
	}
	return asked(op)
}

// question asks the downstream. Where there is nothing to ask, or nobody, the
// present state is the answer.
func (s *API) question(c *call, op operation) error {
	if tool, ok := s.d.Poller.Work().Registry.Lookup(op.tool); ok {
		limit := tool.Timeout // of a question to an asker in Go
		if tool.Query != nil {
			limit = tool.Query.Timeout
		}
		c.allow(limit + s.limits.accept)
	}
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	err := s.d.Poller.Reconcile(ctx, op.id)
	if _, refused := errors.AsType[*guard.Refusal](err); refused {
		return refusedBy(err)
	}
	if errors.Is(err, poller.ErrNoQuery) || errors.Is(err, entry.ErrStale) || errors.Is(err, entry.ErrNotFound) {
		return nil
	}
	return err
}

// Attempt is the evidence of one attempt or question that did not end in a
// receipt.
type Attempt struct {
	Attempt int       `json:"attempt"`
	Round   int       `json:"round"`
	Kind    string    `json:"kind"`
	Token   int64     `json:"fencing_token"`
	Phase   string    `json:"phase"`
	Class   string    `json:"class"`
	Code    string    `json:"code"`
	Excerpt string    `json:"excerpt,omitzero"`
	At      time.Time `json:"at"`
}

// Attempts are the last 1000 of an operation, the oldest of them first.
type Attempts struct {
	Attempts []Attempt `json:"attempts"`
}

const attemptsSQL = `SELECT attempt, round, kind, token, phase, class, code, excerpt, at FROM
	(SELECT * FROM outbox_attempt WHERE operation_id = ? ORDER BY id DESC LIMIT 1000) ORDER BY id`

func (s *API) attempts(c *call) (reply, error) {
	op, err := s.find(c, c.PathValue("ref"))
	if err != nil {
		return reply{}, err
	}
	list := Attempts{}
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	err = s.d.Ledger.Read(ctx, func(v *ledger.View) error {
		list.Attempts, err = evidence(v, op.id)
		return err
	})
	if err != nil {
		return reply{}, err
	}
	return ok(list)
}

func evidence(q ledger.Querier, id int64) ([]Attempt, error) {
	list := []Attempt{}
	err := q.Each(func(r *ledger.Row) error {
		var a Attempt
		err := r.Scan(&a.Attempt, &a.Round, &a.Kind, &a.Token, &a.Phase, &a.Class, &a.Code, &a.Excerpt, &a.At)
		list = append(list, a)
		return err
	}, attemptsSQL, id)
	if err != nil {
		return nil, fmt.Errorf("read attempts: %w", err)
	}
	return list, nil
}
