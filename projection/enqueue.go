package projection

import (
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// ToolName is the name of the built-in tool.
const ToolName = "outbox.project"

// Declare is the built-in tool as the retry and worker sections of cfg complete it.
func Declare(cfg *config.Config) (config.Tool, error) {
	t, err := cfg.Tool(config.Tool{Name: "project", Effect: string(entry.Local)})
	t.Name = ToolName // which no configuration may give
	if err != nil {
		return t, fmt.Errorf("declare %s: %w", ToolName, err)
	}
	return t, nil
}

// Enqueuer enqueues the projection of what has ended. It never changes.
type Enqueuer struct{ registry *contract.Registry }

// NewEnqueuer needs no configuration: what tunes the tool is in no revision.
func NewEnqueuer() (*Enqueuer, error) {
	defaults := config.Default()
	tool, err := Declare(&defaults)
	if err != nil {
		return nil, err
	}
	reg, err := contract.NewRegistry([]config.Tool{tool})
	if err != nil {
		return nil, fmt.Errorf("register %s: %w", ToolName, err)
	}
	return &Enqueuer{reg}, nil
}

// event is what the built-in tool is asked to tell: the arguments of its operation.
// In the order of its names, which is its canonical form.
type event struct {
	Operation string `json:"operation"` // status_ref
	Reason    string `json:"reason,omitzero"`
	Result    string `json:"result_sha256,omitzero"` // in hexadecimal digits
	Round     int64  `json:"round"`
	Session   string `json:"session"`
	State     string `json:"state"`
	Turn      int64  `json:"turn"`
}

// id names the event: one end of one operation. It may be held unknown for several
// reasons, one after the other.
func (e event) id() string {
	return fmt.Sprintf("%s/%d/%s/%s", e.Operation, e.Round, e.State, e.Reason)
}

const endedSQL = `SELECT o.status_ref, o.tenant_id, o.subject_id, o.session_id, o.turn, o.traceparent,
	e.state, e.reason, e.round, r.result_sha256
	FROM outbox_operation AS o JOIN outbox_entry AS e ON e.operation_id = o.id
	LEFT JOIN outbox_receipt AS r ON r.operation_id = o.id
	WHERE o.id = ? AND o.turn IS NOT NULL AND (e.state = 'delivered' OR e.state = 'dead' OR e.state = 'discarded'
		OR e.state = 'unknown' AND e.due_at IS NULL)`

// Ended enqueues the projection of those of the operations that name a turn and
// stand at an end: delivered, dead, discarded, or unknown and held. It is what
// ledger.Options.Ended wants, but for the count of what it enqueued.
func (q *Enqueuer) Ended(tx *ledger.Tx, operations []int64) (n int, err error) {
	for _, id := range operations {
		added, err := q.one(tx, id)
		if err != nil {
			return n, fmt.Errorf("enqueue projection: %w", err)
		}
		if added {
			n++
		}
	}
	return n, nil
}

func (q *Enqueuer) one(tx *ledger.Tx, id int64) (bool, error) {
	var e event
	var scope contract.Scope
	var trace string
	var sum []byte
	err := tx.One(endedSQL, id).Scan(&e.Operation, &scope.Tenant, &scope.Subject, &e.Session, &e.Turn, &trace,
		&e.State, &e.Reason, &e.Round, &sum)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	e.Result = hex.EncodeToString(sum)
	arguments, err := json.Marshal(e)
	if err != nil {
		return false, err
	}
	scope.Tool, scope.Key = ToolName, e.id()
	a, err := intake.Follow(tx, q.registry, intake.Request{Scope: scope, Arguments: arguments, Trace: trace, Parent: e.Operation})
	return a.New, err
}
