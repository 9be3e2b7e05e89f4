package handler

import (
	"errors"
	"fmt"

	"github.com/outboxd/outboxd/ledger"
)

// Local produces an effect in the database file itself, in the transaction that
// settles the attempt: effect and receipt are one commit, or neither is there. Of
// an outcome that is not Succeeded nothing is kept. It may be called more than
// once for one attempt, when its transaction has to be run again, and must touch
// nothing outside of it.
type Local interface {
	Apply(e *ledger.Effect, c Call) Outcome
}

// LocalFunc is a local tool written in Go. It returns a result as JSON, or nil;
// an error undoes everything: one of Reject, Again, or of a constraint, is what it
// says, any other is tried again. Everything is written by one goroutine: the
// function must not call the outside, wait or compute for long. It is not ended at
// the tool's timeout, its next statement is.
type LocalFunc func(e *ledger.Effect, c Call) ([]byte, error)

// Apply calls f.
func (f LocalFunc) Apply(e *ledger.Effect, c Call) (out Outcome) {
	defer func() {
		if value := recover(); value != nil {
			out = Outcome{Observed: TryAgain, Code: "panic", Err: panicked(value), Excerpt: errPanic.Error()}
		}
	}()
	raw, err := f(e, c)
	if err != nil {
		return Undone(err)
	}
	return applied(raw)
}

// applied is the outcome with this result. What cannot be a result undoes the
// effect: it could never be told.
func applied(raw []byte) Outcome {
	if raw == nil {
		return Outcome{Observed: Succeeded, Code: "committed"}
	}
	if result := canonical(raw); result != nil {
		return Outcome{Observed: Succeeded, Code: "committed", Result: result}
	}
	return Outcome{Observed: Rejected, Code: "result_invalid",
		Excerpt: fmt.Sprintf("the result is no strict JSON of up to %d bytes", MaxResult)}
}

// Undone is the outcome of a local effect that ended with an error: nothing of it
// is kept. A constraint is a refusal, with the database's reason.
func Undone(err error) Outcome {
	out := Outcome{Observed: TryAgain, Code: "error", Err: bound(err)}
	var v *verdict
	switch {
	case errors.As(err, &v):
		out.Observed, out.Code = v.observed, "returned"
		out.RetryAfter, out.HasRetryAfter = v.after, v.wait
		if v.observed != Rejected {
			out.Observed = TryAgain // nothing else can be: it is undone
		}
		err = v.err
	case errors.Is(err, ledger.ErrOverTime):
		out.Code, err = codeTimeout, ledger.ErrOverTime
	default:
		if f, ok := ledger.FailureOf(err); ok {
			out.Code, err = f.Code, f
			if f.Constraint {
				out.Observed = Rejected
			}
		}
	}
	out.Answered = true
	out.Excerpt = newRedactor(nil).head([]byte(err.Error()), nil)
	return out
}
