package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// Approve is the body of an approval or, with Refuse, of its refusal.
type Approve struct {
	Refuse bool   `json:"refuse,omitzero"`
	Reason string `json:"reason"`
}

// Approval is the part of a case under which an operator has it accepted at once.
type Approval struct {
	ID         string    `json:"approval_id"`
	Approver   string    `json:"approver_id"`
	ApprovedAt time.Time `json:"approved_at"`
	ExpiresAt  time.Time `json:"expires_at"`
}

// approve gives or refuses the approval that an operation waits for. Only an operator
// may, and not one that may submit for the operation's subject.
func (s *API) approve(c *call) (reply, error) {
	var body Approve
	if err := c.body(&body); err != nil {
		return reply{}, err
	}
	if err := contract.CheckName("reason", body.Reason); err != nil {
		return reply{}, err
	}
	op, err := s.find(c, c.PathValue("ref"))
	if err != nil {
		return reply{}, err
	}
	if err := s.mayApprove(c, op, body); err != nil {
		return reply{}, err
	}
	ctx, cancel := context.WithTimeout(c.Context(), s.limits.accept)
	defer cancel()
	err = s.d.Ledger.Write(ctx, func(tx *ledger.Tx) error { return s.decide(tx, c, op, body) })
	switch {
	case errors.Is(err, entry.ErrStale), errors.Is(err, entry.ErrNotFound):
		return reply{}, problem("NOT_WAITING")
	case err != nil:
		return reply{}, err
	}
	s.d.Poller.Wake()
	s.Settled(op.ref)
	if op, err = s.find(c, op.ref); err != nil {
		return reply{}, err
	}
	return asked(op)
}

func (s *API) mayApprove(c *call, op operation, body Approve) error {
	access := s.access.Load()
	if !access.operator(c.peer) {
		return problem("AUTHORIZATION_DENIED")
	}
	if !body.Refuse && access.submits(c.peer, op.tenant, op.subject, op.tool) {
		p := problem("AUTHORIZATION_DENIED")
		p.Detail = "your uid may submit for this subject: somebody else has to approve"
		return p
	}
	return nil
}

// decide is the transaction: what waits goes on or ends, and who said so is kept.
func (s *API) decide(tx *ledger.Tx, c *call, op operation, body Approve) error {
	from, err := entry.Get(tx, op.id)
	if err != nil {
		return err
	}
	word := deadletter.Word{Refused: body.Refuse, UID: c.peer.UID, Reason: body.Reason}
	if body.Refuse {
		if err := entry.Drop(tx, entry.Refuse, op.id, entry.Waiting, deadletter.ApprovalRefused); err != nil {
			return err
		}
		return word.Record(tx, from, entry.Discarded)
	}
	ops, err := intake.Load(tx, []int64{op.id})
	if err != nil {
		return err
	}
	tool, known := s.d.Poller.Work().Registry.Lookup(op.tool)
	if !known {
		return problem("TOOL_UNKNOWN")
	}
	if !from.DueAt.IsZero() && !tx.Now().Before(from.DueAt) {
		return entry.ErrStale // its deadline has passed, whether or not anybody has looked
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make approval id: %w", err)
	}
	err = intake.Approve(tx, ops[op.id], tool.Approval, id.String(), "uid:"+strconv.Itoa(c.peer.UID))
	if err != nil {
		return err
	}
	return word.Record(tx, from, entry.Pending)
}

// approval is the one that comes with a case. Who submits for a subject cannot bring
// one: only an operator can.
func (c *call) approval(b *Case) (*contract.Approval, error) {
	if b.Approval == nil {
		return nil, nil
	}
	if !c.access.operator(c.peer) {
		p := problem("AUTHORIZATION_DENIED")
		p.Detail = "only an operator may bring an approval with a case"
		return nil, p
	}
	return &contract.Approval{ID: b.Approval.ID, Approver: b.Approval.Approver,
		ApprovedAt: b.Approval.ApprovedAt, ExpiresAt: b.Approval.ExpiresAt}, nil
}

// Approve gives the approval that an operation waits for, or refuses it.
func (c *Client) Approve(ctx context.Context, ref string, body Approve) (a Answer, err error) {
	return a, c.call(ctx, "POST", operationPath(ref)+"/approve", nil, body, &a)
}
