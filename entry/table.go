package entry

import "fmt"

// Event is what happens to an entry.
type Event string

// The events.
const (
	Accept       Event = "accept"
	Approve      Event = "approve"
	Refuse       Event = "refuse, or deadline"
	Claim        Event = "claim"
	ClaimMarked  Event = "claim, marked"
	Mark         Event = "mark"
	Drain        Event = "drain"
	GuardRefuses Event = "guard refuses"
	Reapproval   Event = "approval expired"
	Succeed      Event = "succeeded"
	Reject       Event = "rejected"
	Again        Event = "nothing done, try again"
	Maybe        Event = "may have happened, or in progress"
	CutOff       Event = "drain limit reached"
	LeaseOver    Event = "lapse"
	Ask          Event = "ask"
	Reconcile    Event = "reconcile"
	Applied      Event = "applied"
	Conflict     Event = "conflict"
	NotApplied   Event = "not applied, and it counts"
	TooEarly     Event = "not applied, too early"
	NoAnswer     Event = "in progress, or no answer"
	AskOver      Event = "question over: lease, or drain"
	LateSuccess  Event = "late success carrying claim_token"
	LateNothing  Event = "late proof of no effect carrying claim_token"
	Limit        Event = "a limit is reached"
	ReviewRetry  Event = "review retry"
	ResolveDone  Event = "review resolve applied"
	ResolveNot   Event = "review resolve not applied"
	Discard      Event = "review discard"
	Cancel       Event = "cancel"
	Restored     Event = "release after a restore"
)

// Transition is one row of the table of states: an event in a state, and where
// it may lead. Which of several it is depends on the effect class, on whether
// something sent is unproven, and on the limits.
type Transition struct {
	From  State // "" for an entry that does not exist yet
	Event Event
	To    []State
}

// Transitions is the whole state machine: what is not here cannot happen.
var Transitions = []Transition{
	{"", Accept, []State{Pending, Waiting}},
	{Waiting, Approve, []State{Pending}},
	{Waiting, Refuse, []State{Discarded}},
	{Waiting, Cancel, []State{Discarded}},

	{Pending, Claim, []State{Claimed}},
	{Pending, ClaimMarked, []State{Sending}},
	{Pending, Limit, []State{Dead, Unknown}},
	{Pending, LateSuccess, []State{Delivered}},
	{Pending, Cancel, []State{Discarded, Unknown}},

	{Claimed, Mark, []State{Sending}},
	{Claimed, Drain, []State{Pending}},
	{Claimed, GuardRefuses, []State{Pending, Dead, Unknown}},
	{Claimed, Reapproval, []State{Waiting, Unknown}},
	{Claimed, LeaseOver, []State{Pending}},
	{Claimed, Limit, []State{Dead, Unknown}},

	{Sending, Drain, []State{Pending}},
	{Sending, GuardRefuses, []State{Pending, Dead, Unknown}},
	{Sending, Reapproval, []State{Waiting, Unknown}},
	{Sending, Succeed, []State{Delivered}},
	{Sending, Reject, []State{Dead, Unknown}},
	{Sending, Again, []State{Pending, Dead, Unknown}},
	{Sending, Maybe, []State{Pending, Unknown}},
	{Sending, CutOff, []State{Pending, Unknown}},
	{Sending, LeaseOver, []State{Pending, Unknown}},
	{Sending, Limit, []State{Unknown}},

	{Unknown, Ask, []State{Unknown}},
	{Unknown, Reconcile, []State{Unknown}},
	{Unknown, Applied, []State{Delivered}},
	{Unknown, Conflict, []State{Unknown}},
	{Unknown, NotApplied, []State{Pending, Dead}},
	{Unknown, TooEarly, []State{Unknown}},
	{Unknown, NoAnswer, []State{Unknown}},
	{Unknown, AskOver, []State{Unknown}},
	{Unknown, LateSuccess, []State{Delivered}},
	{Unknown, LateNothing, []State{Pending, Dead, Unknown}},
	{Unknown, Limit, []State{Unknown}},

	{Dead, ReviewRetry, []State{Pending}},
	{Dead, Discard, []State{Discarded}},
	{Unknown, ReviewRetry, []State{Pending}},
	{Unknown, ResolveDone, []State{Delivered}},
	{Unknown, ResolveNot, []State{Pending}},
	{Unknown, Discard, []State{Discarded}},

	{Pending, Restored, []State{Pending, Unknown}},
	{Claimed, Restored, []State{Unknown}},
	{Sending, Restored, []State{Pending, Unknown}},
	{Unknown, Restored, []State{Unknown}},
	{Waiting, Restored, []State{Unknown}},
	{Dead, Restored, []State{Unknown}},
}

// Allowed reports whether event may lead from one state to the other.
func Allowed(from State, event Event, to State) bool {
	for _, t := range Transitions {
		if t.From != from || t.Event != event {
			continue
		}
		for _, s := range t.To {
			if s == to {
				return true
			}
		}
	}
	return false
}

// demand is an error of the program, not of the data: code above asked for a
// transition that the table does not have.
func demand(from State, event Event, to State) error {
	if Allowed(from, event, to) {
		return nil
	}
	return fmt.Errorf("no transition %q from %q to %q", event, from, to)
}
