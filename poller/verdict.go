package poller

import (
	"time"

	"github.com/outboxd/outboxd/backoff"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
)

// judge turns what was observed of one attempt into what becomes of its entry.
// It decides in the settle transaction, by the policy of that moment.
type judge struct {
	claim
	limits deadletter.Limits
	tool   *contract.Tool // today's

	doubtful bool // the clock was set, and stored instants do not show it yet
}

func (p *Poller) judge(tx *ledger.Tx, c claim) (judge, error) {
	tool := c.tool
	if today, ok := p.Work().Registry.Lookup(tool.Name); ok {
		tool = today
	}
	excused, err := excused(tx, tool.Name)
	return judge{c, p.limits(tool, tx.Now(), excused), tool, p.clock.doubtful(p.l.Now(), time.Now())}, err
}

// settle moves the entry as the observation asks for. Success is settled
// elsewhere: it needs a receipt.
func (j judge) settle(tx *ledger.Tx, o observation) (entry.State, error) {
	switch {
	case o.event == entry.Reapproval:
		return j.held.Reapprove(tx, !j.due.UnprovenSince.IsZero(), j.evidence(o))
	case o.event == entry.GuardRefuses:
		return j.nothing(tx, entry.GuardRefuses, o, o.why)
	case o.Observed == handler.Rejected:
		n := entry.Nothing{Event: entry.Reject, Evidence: j.evidence(o), GiveUp: deadletter.Rejected}
		return j.held.Nothing(tx, n)
	case o.Observed == handler.TryAgain, o.Observed == handler.NotSent:
		return j.nothing(tx, entry.Again, o, "")
	}
	return j.doubt(tx, o)
}

// nothing: it did nothing. It is tried again, or given up at a limit; reason
// then takes the place of attempts_exhausted.
func (j judge) nothing(tx *ledger.Tx, e entry.Event, o observation, reason string) (entry.State, error) {
	at := j.next(o)
	giveUp := j.limits.AfterFailure(j.due, j.due.UnprovenSince, at)
	if giveUp != "" && reason != "" {
		giveUp = reason
	}
	return j.held.Nothing(tx, entry.Nothing{Event: e, At: at, Evidence: j.evidence(o), GiveUp: giveUp})
}

// doubt: it may have taken effect. By class it is sent again with the same key,
// asked about, or left to a person.
func (j judge) doubt(tx *ledger.Tx, o observation) (entry.State, error) {
	over := o.Answered && o.Observed != handler.InProgress // an answer, but not the end of it
	d := entry.Doubt{Event: entry.Maybe, To: entry.Unknown, Over: over, Evidence: j.evidence(o),
		Reason: deadletter.Unproven}
	if o.event == entry.CutOff {
		d.Event = entry.CutOff
	}
	if o.why == deadletter.OutputInvalid {
		d.Reason = o.why
		return j.held.Doubt(tx, d)
	}
	switch j.op.Effect {
	case entry.Idempotent, entry.Local:
		d.To, d.Reason = entry.Pending, ""
		if d.At = j.next(o); d.Event == entry.CutOff {
			d.At = tx.Now()
			break
		}
		if giveUp := j.limits.AfterFailure(j.due, j.since(), d.At); giveUp != "" {
			return j.held.GiveUp(tx, giveUp, over, d.Evidence)
		}
	case entry.Queryable:
		switch d.At = j.firstQuestion(o); {
		case o.Code == codeAbandoned && d.Event != entry.CutOff:
			d.At, d.Reason = time.Time{}, deadletter.Abandoned
		case j.tool.Query == nil:
			d.At, d.Reason = time.Time{}, deadletter.NoQuery
		}
	}
	return j.held.Doubt(tx, d)
}

// since is the first unproven send, this attempt's own included.
func (j judge) since() time.Time {
	if j.due.UnprovenSince.IsZero() {
		return j.limits.Now
	}
	return j.due.UnprovenSince
}

// next is when the entry is tried again: after the backoff, or later if the
// downstream asked for that, within the policy's cap.
func (j judge) next(o observation) time.Time {
	return j.limits.Now.Add(j.delay(j.due.Failures+1, o.HasRetryAfter, o.RetryAfter))
}

func (j judge) delay(failures int, asked bool, wish time.Duration) time.Duration {
	d := j.tool.Retry.Backoff.Delay(failures, j.seed())
	if asked {
		d = max(d, min(wish, longest(j.tool)))
	}
	return d
}

// firstQuestion: soon, since a lost answer is the usual cause; an answer of "not
// applied" that comes too early is asked again when it may count.
func (j judge) firstQuestion(o observation) time.Time {
	return j.limits.Now.Add(j.delay(1, o.HasRetryAfter, o.RetryAfter))
}

func (j judge) seed() uint64 { return backoff.Seed(j.held.ID, j.held.Attempt) }

func (j judge) evidence(o observation) entry.Evidence {
	kind := entry.Outcome
	if o.event == entry.GuardRefuses || o.event == entry.Reapproval {
		kind = entry.Blocked
	}
	return entry.Evidence{Kind: kind, Phase: string(j.held.State), Class: string(o.Observed), Code: o.Code, Excerpt: o.Excerpt}
}
