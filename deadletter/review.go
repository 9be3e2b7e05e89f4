package deadletter

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// Action is what a person decides about an entry.
type Action string

// The actions, as outbox_review has them.
const (
	Retry             Action = "retry"               // a new round, under the same key
	ResolveApplied    Action = "resolve_applied"     // it took effect
	ResolveNotApplied Action = "resolve_not_applied" // no send of it did: a new round
	Discard           Action = "discard"             // it is not wanted any more
	Cancel            Action = "cancel"              // as Discard, of what has not been given up
)

// Review is one decision, with who took it and why.
type Review struct {
	Action   Action
	UID      int    // of the peer: the record
	By       string // a note only
	Reason   string
	Evidence []byte // canonical JSON; nil: none
	Result   []byte // of ResolveApplied: canonical JSON that callers get; nil: none

	Tool           string // "": any; a subject of another one is refused
	AcceptContract bool   // Retry and ResolveNotApplied: under today's revisions
	AcceptRisk     bool   // Retry: although it may take effect a second time
}

// Subject is the entry that is decided about.
type Subject struct {
	Due  entry.Due
	Op   *contract.Operation
	Tool *contract.Tool // today's; nil: it is not configured
}

// Refusal says why a decision is not carried out. Nothing was changed.
type Refusal struct {
	Code  string
	State entry.State // of the entry, at present
	What  string
}

// Error is the code and what to do.
func (r *Refusal) Error() string { return r.Code + ": " + r.What }

// The codes of refusals.
const (
	AlreadyDelivered = "ALREADY_DELIVERED"
	AlreadyDiscarded = "ALREADY_DISCARDED"
	InProgress       = "IN_PROGRESS"
	NotGivenUp       = "NOT_GIVEN_UP"
	GivenUp          = "GIVEN_UP"
	NotUnknown       = "NOT_UNKNOWN"
	AttemptRunning   = "ATTEMPT_RUNNING"
	DuplicateRisk    = "DUPLICATE_RISK"
	ContractDrift    = "CONTRACT_DRIFT"
	NotConfigured    = "TOOL_NOT_CONFIGURED"
	OtherTool        = "OTHER_TOOL"
)

// Check reports with a *Refusal why the decision cannot be carried out now.
func (r Review) Check(now time.Time, s Subject) error {
	refuse := func(code, what string) error { return &Refusal{code, s.Due.State, what} }
	switch state := s.Due.State; {
	case r.Tool != "" && r.Tool != s.Op.Scope.Tool:
		return refuse(OtherTool, "it is an operation of another tool than the one that is named")
	case state == entry.Delivered:
		return refuse(AlreadyDelivered, "it is done: to have it done again, submit it under a new key")
	case state == entry.Discarded:
		return refuse(AlreadyDiscarded, "it has been discarded: to have it done after all, submit it under a new key")
	case state == entry.Claimed || state == entry.Sending:
		return refuse(InProgress, "an attempt is under way: wait for its end")
	case r.Action == Cancel && (state == entry.Dead || state == entry.Unknown):
		return refuse(GivenUp, "it has been given up, or its outcome is unknown: discard it instead")
	case r.Action == Cancel:
		return nil
	case state == entry.Pending || state == entry.Waiting:
		return refuse(NotGivenUp, "it goes on by itself, or waits for an approval: to end it, cancel it")
	case r.Action.resolves() && state != entry.Unknown:
		return refuse(NotUnknown, "it is known to have had no effect: retry or discard it")
	case !r.Action.begins():
		return nil
	case s.Due.OverAt.After(now):
		return refuse(AttemptRunning, "the last attempt is not known to be over before "+s.Due.OverAt.UTC().Format(time.RFC3339)+": try again then")
	case r.Action == Retry && s.risky(now) && !r.AcceptRisk:
		return refuse(DuplicateRisk, "it may have taken effect, and nothing downstream is known to prevent a second one: "+
			"resolve it, or accept the risk of a duplicate")
	}
	return r.drift(s)
}

// drift: attempts of the new round would be refused.
func (r Review) drift(s Subject) error {
	refuse := func(code, what string) error { return &Refusal{code, s.Due.State, what} }
	if s.Tool == nil {
		if r.AcceptContract {
			return refuse(NotConfigured, "the tool is not configured: there is no contract to accept")
		}
		return nil
	}
	if s.Op.Effect != s.Tool.Effect || s.Op.WireKey != contract.WireKey(s.Tool.Wire, s.Op.Scope) {
		return refuse(ContractDrift, "the tool's effect class or wire key is another one since, and those of an operation never change: "+
			"bring the tool's back, or discard it and submit it under a new key")
	}
	if field := s.Op.Revisions.Differ(s.Tool.Revisions); field != "" && !r.AcceptContract {
		return refuse(ContractDrift, "the tool has changed its "+field+" since: bring it back, or accept the contract of today")
	}
	return nil
}

func (a Action) resolves() bool { return a == ResolveApplied || a == ResolveNotApplied }

// begins: a new round.
func (a Action) begins() bool { return a == Retry || a == ResolveNotApplied }

// risky: an earlier send may have had an effect, and the downstream does not, or
// does no longer, know the key.
func (s Subject) risky(now time.Time) bool {
	if s.Due.UnprovenSince.IsZero() {
		return false
	}
	window := time.Duration(0)
	if s.Tool != nil {
		window = s.Tool.KeyWindow
	}
	return s.Op.Effect != entry.Idempotent && s.Op.Effect != entry.Local ||
		Limits{KeyWindow: window}.windowPassed(s.Due.UnprovenSince, now)
}

// Apply carries the decision out and records it, or answers with a *Refusal. A new
// round begins at due, and not before the operation's own not_before.
func (r Review) Apply(tx *ledger.Tx, s Subject, due time.Time) (entry.State, error) {
	if err := r.Check(tx.Now(), s); err != nil {
		return "", err
	}
	to, err := r.move(tx, s, due)
	switch {
	case errors.Is(err, entry.ErrRunning):
		return "", &Refusal{AttemptRunning, s.Due.State, "the last attempt is not known to be over"}
	case err != nil:
		return "", fmt.Errorf("%s: %w", r.Action, err)
	}
	return to, r.record(tx, s, to)
}

func (r Review) move(tx *ledger.Tx, s Subject, due time.Time) (entry.State, error) {
	if due.Before(s.Op.NotBefore) {
		due = s.Op.NotBefore
	}
	switch r.Action {
	case Retry, ResolveNotApplied:
		excused, err := excused(tx, s.Due.Tool)
		if err == nil && r.Action == Retry {
			err = entry.RetryReviewed(tx, s.Due.ID, s.Due.State, due, excused)
		} else if err == nil {
			err = entry.ResolveNotApplied(tx, s.Due.ID, due, excused)
		}
		return entry.Pending, err
	case ResolveApplied:
		sum := contract.ResultDigest(r.Result)
		receipt := entry.Receipt{Result: r.Result, ResultSum: sum, Binding: s.Op.Bind(sum, "").Digest()}
		return entry.Delivered, entry.ResolveApplied(tx, s.Due, receipt)
	case Cancel:
		return entry.Withdraw(tx, s.Due.ID)
	}
	return entry.Discarded, entry.Drop(tx, entry.Discard, s.Due.ID, s.Due.State, "discarded")
}

// excused is the time for which the tool's entries have not aged so far, a pause
// that still lasts included.
func excused(tx *ledger.Tx, tool string) (time.Duration, error) {
	var ms int64
	err := tx.One(`SELECT excused_ms + IIF(paused, MAX(0, ? - paused_at), 0) FROM outbox_tool WHERE tool_name = ?`,
		tx.Now(), tool).Scan(&ms)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return time.Duration(ms) * time.Millisecond, err
}

func (r Review) record(tx *ledger.Tx, s Subject, to entry.State) error {
	var evidence, revisions any
	if r.Evidence != nil {
		evidence = string(r.Evidence)
	}
	if r.AcceptContract && r.Action.begins() && s.Tool != nil {
		revisions = s.Tool.Revisions.Encode()
	}
	n, err := tx.Exec(`INSERT INTO outbox_review
		(operation_id, action, uid, by_note, reason, evidence, revisions, state_before, state_after, round, at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, s.Due.ID, string(r.Action), r.UID, r.By, r.Reason, evidence, revisions,
		string(s.Due.State), string(to), s.Due.Round, tx.Now())
	if err == nil && n == 0 {
		err = ledger.ErrIgnored
	}
	if err != nil {
		return fmt.Errorf("record review: %w", err)
	}
	return nil
}

// Reviewed is a recorded decision.
type Reviewed struct {
	Action              Action
	UID                 int
	By, Reason          string
	Evidence, Revisions []byte // nil: none
	Before, After       entry.State
	Round               int // that was decided about
	At                  time.Time
}

// Reviews are the decisions about one operation, the oldest first.
func Reviews(q ledger.Querier, id int64) (list []Reviewed, err error) {
	err = q.Each(func(r *ledger.Row) error {
		var v Reviewed
		err := r.Scan(&v.Action, &v.UID, &v.By, &v.Reason, &v.Evidence, &v.Revisions, &v.Before, &v.After, &v.Round, &v.At)
		list = append(list, v)
		return err
	}, `SELECT action, uid, by_note, reason, evidence, revisions, state_before, state_after, round, at
		FROM outbox_review WHERE operation_id = ? ORDER BY id`, id)
	if err != nil {
		return nil, fmt.Errorf("read reviews: %w", err)
	}
	return list, nil
}
