package contract

import (
	"crypto/sha256"
	"strconv"
	"time"
)

const tagApproval = "outboxd.approval.v1\x00"

// Approval is a person's word that one operation may have its effect.
type Approval struct {
	ID         string
	Approver   string    // never the subject
	ApprovedAt time.Time // milliseconds
	ExpiresAt  time.Time // milliseconds; zero: never
}

// Valid reports whether the approval holds: approved_at <= now < expires_at.
func (a Approval) Valid(now time.Time) bool {
	return !now.Before(a.ApprovedAt) && (a.ExpiresAt.IsZero() || now.Before(a.ExpiresAt))
}

// Digest binds the approval to the operation that it was given for, with its key,
// its provider's call and its contract as they were accepted.
func (a Approval) Digest(op *Operation) [32]byte {
	b := make([]byte, 0, 2048)
	b = append(b, tagApproval...)
	b = member(b, `{"adapter_revision":`, op.Origin.AdapterRevision)
	b = member(b, `,"api_family":`, op.Origin.APIFamily)
	b = member(b, `,"approval_id":`, a.ID)
	b = member(b, `,"approved_at":`, millis(a.ApprovedAt))
	b = member(b, `,"approver":`, a.Approver)
	b = member(b, `,"call_id":`, op.Origin.CallID)
	b = member(b, `,"effect_revision":`, op.Original.Effect)
	b = member(b, `,"expires_at":`, millis(a.ExpiresAt))
	b = member(b, `,"handler_revision":`, op.Original.Handler)
	b = member(b, `,"idempotency_key":`, op.Scope.Key)
	b = member(b, `,"input_revision":`, op.Original.Input)
	b = member(b, `,"output_revision":`, op.Original.Output)
	b = member(b, `,"policy_revision":`, op.Original.Policy)
	b = member(b, `,"producer_revision":`, op.Original.Producer)
	b = member(b, `,"provider":`, op.Origin.Provider)
	b = hexMember(b, `,"request_sha256":"`, op.RequestSum)
	b = member(b, `,"response_id":`, op.Origin.ResponseID)
	b = member(b, `,"status_ref":`, op.StatusRef)
	b = member(b, `,"subject":`, op.Scope.Subject)
	b = member(b, `,"tenant":`, op.Scope.Tenant)
	b = member(b, `,"tool":`, op.Scope.Tool)
	return sha256.Sum256(append(b, '}'))
}

// millis is an instant as Unix milliseconds in decimal; "" is none.
func millis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}
