// Package intake decides what becomes an operation: it validates a request,
// stores it under its scope, and tells a repetition from a conflict. It is the
// one door: the interface, the command line, a follow-up and the rows that
// applications insert into outbox_intake all come through Prepare and Accept.
//
// It promises that an operation and its entry are one commit; that a scope and
// key name one operation for as long as it lives, whoever asks at the same time;
// that a repetition changes nothing and another request under the same key is
// refused, naming fields and never values; and that each row of outbox_intake
// becomes an operation or a refusal that keeps its bytes, in one transaction,
// whatever stands in the row beside it. A row that triggers and constraints of the
// application let become neither is parked.
//
// Whether the caller may name this tenant and subject is decided above. When an
// operation runs is left to poller. It owns outbox_operation, outbox_tombstone,
// outbox_intake, outbox_refused and outbox_approval.
package intake

import (
	"strings"
	"time"

	"github.com/outboxd/outboxd/contract"
)

// Request is one intent as a caller states it. Nothing in it is trusted.
type Request struct {
	Scope     contract.Scope
	Arguments []byte // any one JSON value; kept in canonical form
	Origin    contract.Origin
	NotBefore time.Time // no attempt is due earlier; zero: at once. Kept in milliseconds, rounded up
	Session   string    // empty: none
	Turn      int64     // of Session, from 1; 0: none
	Trace     string    // W3C traceparent, empty: none
	Parent    string    // status_ref of the operation that it follows from; empty for whoever asks from outside

	// Approval under which it is accepted, of a tool that wants one; nil: it waits
	// for one.
	Approval *contract.Approval
}

// The codes of a request that is not accepted (docs/reference/api.md).
const (
	KeyRequired  = "KEY_REQUIRED"
	InputInvalid = "INPUT_INVALID"
	ToolUnknown  = "TOOL_UNKNOWN"
	KeyConflict  = "IDEMPOTENCY_CONFLICT"
	KeyPurged    = "ALREADY_PURGED"
	StoreRefused = "STORE_REFUSED" // of a row only: a trigger or constraint of the application
)

// Invalid says why a request can never be accepted as it is. No text in it
// carries a value of the request.
type Invalid struct {
	Code     string // ToolUnknown, else KeyRequired, else InputInvalid
	Problems []contract.InputError
}

// Error lists every problem, each with the field that it is about.
func (e *Invalid) Error() string {
	texts := make([]string, len(e.Problems))
	for i := range e.Problems {
		texts[i] = e.Problems[i].Error()
	}
	return strings.Join(texts, "; ")
}

// Conflict says that the scope and key belong to an operation with another request.
type Conflict struct {
	Fields []string // names only, in the order of the fields of a case
}

// Error names the fields that differ.
func (e *Conflict) Error() string {
	return "another request has this key; it differs in " + strings.Join(e.Fields, ", ")
}
