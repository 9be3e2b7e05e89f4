package handler

import (
	"strings"
	"unicode/utf8"

	"github.com/outboxd/outboxd/contract"
)

// The bounds of what a handler may say, in bytes.
const (
	maxCode      = 64
	maxReference = 255
)

// Normal is the outcome as it may be stored and shown, whoever wrote the handler:
// a result is canonical JSON or becomes evidence, every text is bounded and safe
// to print, and an observation that does not exist may have happened.
func (o Outcome) Normal() Outcome {
	switch o.Observed {
	case Succeeded, Rejected, TryAgain, NotSent, MayHaveHappened, InProgress:
	default:
		o.Observed, o.Answered = MayHaveHappened, false
	}
	o.Result, o.Excerpt = evidence(o.Result, o.Excerpt)
	o.Code, o.Reference = short(o.Code, maxCode), short(o.Reference, maxReference)
	o.RetryAfter = max(o.RetryAfter, 0)
	return o
}

// Normal is the answer as it may be stored and shown, as an Outcome's is. One that
// does not exist is none.
func (a Answer) Normal() Answer {
	switch a.Found {
	case Applied, NotApplied, Conflict, NoAnswer, InProgress:
	default:
		a.Found = NoAnswer
	}
	a.Result, a.Excerpt = evidence(a.Result, a.Excerpt)
	a.Code, a.Reference = short(a.Code, maxCode), short(a.Reference, maxReference)
	a.RetryAfter = max(a.RetryAfter, 0)
	return a
}

// evidence keeps a result that is one. Any other is the excerpt where there is no
// other.
func evidence(result []byte, excerpt string) ([]byte, string) {
	canon := result
	if len(result) > MaxResult || !contract.IsCanonical(result) {
		canon = canonical(result)
	}
	if canon == nil && excerpt == "" {
		excerpt = string(result)
	}
	return canon, beginning(escape(excerpt), MaxExcerpt)
}

// short is one line of at most so many bytes.
func short(text string, most int) string {
	if len(text) > 4*most {
		text = text[:4*most]
	}
	return beginning(escape(text), most)
}

// beginning cuts a text between runes.
func beginning(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := most - len(cutMark)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.TrimSpace(s[:end]) + cutMark
}
