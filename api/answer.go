package api

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
)

// Answer is what every call about one operation answers with.
type Answer struct {
	StatusRef      string         `json:"status_ref"`
	Status         string         `json:"status"`
	Gate           string         `json:"gate"`
	Code           string         `json:"code"`
	Delivery       string         `json:"delivery,omitzero"` // only with a result
	Result         jsontext.Value `json:"result,omitzero"`   // null: delivered without one
	Reason         string         `json:"reason,omitzero"`   // dead, unknown, waiting, discarded
	Tool           string         `json:"tool"`
	IdempotencyKey string         `json:"idempotency_key"`
	Attempts       int            `json:"attempts"`
	DueAt          time.Time      `json:"due_at,omitzero"`   // UTC; zero: nobody's turn
	Parent         string         `json:"parent,omitzero"`   // status_ref of the operation that it follows from
	Children       []string       `json:"children,omitzero"` // status_refs of what follows from it, up to 100

	// Package binds the result to the request, the call and the contract; only with a
	// result. outboxd verify recomputes it.
	Package *contract.Package `json:"package,omitzero"`
}

// The gates: may the caller go on as if it had been done, or taken over.
const (
	Pass  = "PASS"
	Block = "BLOCK"
)

// After is the call that an answer answers: the same state means "well received"
// after a submit and "not done yet" after a dispatch.
type After int

// The calls. Asked is a status or a reconcile.
const (
	Submitted After = iota
	Asked
	Dispatched
)

// verdict is what a state means to a caller.
type verdict struct {
	gate, code string
	http       int
	exit       int // of the command
}

// answers is the table of what a state means to a caller, each row in the order of After.
var answers = map[entry.State][3]verdict{
	entry.Pending:   pending,
	entry.Claimed:   pending,
	entry.Sending:   pending,
	entry.Waiting:   blocked("APPROVAL_REQUIRED", http.StatusAccepted),
	entry.Unknown:   blocked("OUTCOME_UNKNOWN", http.StatusOK),
	entry.Dead:      blocked("DEAD_LETTERED", http.StatusOK),
	entry.Discarded: blocked("DISCARDED", http.StatusOK),
	entry.Delivered: {done, done, done},
}

var (
	accepted = verdict{Pass, "ACCEPTED", http.StatusAccepted, 0}
	done     = verdict{Pass, "OK", http.StatusOK, 0}
	pending  = [3]verdict{
		{Pass, "PENDING", http.StatusOK, 0},
		{Pass, "PENDING", http.StatusOK, 1},
		{Block, "OUTCOME_UNKNOWN", http.StatusOK, 1},
	}
)

func blocked(code string, submitted int) [3]verdict {
	later := verdict{Block, code, http.StatusOK, 1}
	return [3]verdict{{Block, code, submitted, 1}, later, later}
}

// judge looks up what a state means. fresh: the operation is new with this call.
func judge(after After, s entry.State, fresh bool) verdict {
	v := answers[s][after]
	if after == Submitted && fresh && v.code == "PENDING" {
		return accepted
	}
	return v
}

// states finds a state that a status word stands for.
var states = func() map[string]entry.State {
	m := make(map[string]entry.State, len(entry.States))
	for _, s := range entry.States {
		m[s.Status()] = s
	}
	return m
}()

// Exit is the exit status of a command that ends with this answer.
func (a Answer) Exit(after After) int {
	s, ok := states[a.Status]
	if !ok {
		return 2
	}
	return judge(after, s, false).exit
}

// As is the same operation, answered as after another call.
func (a Answer) As(after After) Answer {
	if s, ok := states[a.Status]; ok {
		v := judge(after, s, false)
		a.Gate, a.Code = v.gate, v.code
	}
	return a
}
