package poller

import (
	"strings"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/handler"
)

// unfit is what an answer proves whose result breaks the tool's output schema: less
// than it says. The effect has most likely taken place, so nothing is sent again and
// nothing is given up; but who reads a receipt relies on the schema, and an answer
// of another form may come from something else than the tool. A person decides. The
// answer is kept as evidence.
func unfit(o observation, problems []contract.InputError) observation {
	o.Observed, o.Code, o.Answered, o.why = handler.MayHaveHappened, deadletter.OutputInvalid, true, deadletter.OutputInvalid
	o.Excerpt, o.Result = misfit(o.Result, problems), nil
	return o
}

// misfit says what of a result does not fit, and as much of it as evidence may hold.
func misfit(result []byte, problems []contract.InputError) string {
	text := problems[0].Error() + "; the answer: " + string(result)
	if len(text) > handler.MaxExcerpt {
		text = strings.ToValidUTF8(text[:handler.MaxExcerpt], "")
	}
	return text
}
