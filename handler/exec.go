package handler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxd/outboxd/config"
)

const (
	// termGrace is what a program has between SIGTERM and SIGKILL.
	termGrace = time.Second
	// drainGrace is how long output is awaited of those who hold the pipe
	// after the program itself ended, and once more after they were killed.
	drainGrace = 500 * time.Millisecond
)

// program is a configured program, for effects or for questions.
type program struct {
	argv     []string
	dir      string
	env      []string // the configured variables, NAME=value
	rejected []int
	tryAgain []int
	secrets  []string
	standing standing
}

// newProgram looks up the variables that are passed through: their values are
// those of the time of the build.
func newProgram(x config.Exec) (*program, error) {
	if len(x.Argv) == 0 || x.Argv[0] == "" {
		return nil, errors.New("exec.argv is empty")
	}
	as, err := newStanding(x)
	if err != nil {
		return nil, err
	}
	g := &program{argv: x.Argv, dir: x.Dir, rejected: x.Rejected, tryAgain: x.TryAgain, standing: as}
	for _, arg := range x.Argv[1:] {
		if len(arg) >= shortBody {
			g.secrets = append(g.secrets, arg)
		}
	}
	for _, v := range x.Env {
		if err := g.addVariable(v); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *program) addVariable(v config.EnvVar) error {
	if v.Name == "" || strings.ContainsAny(v.Name, "=\x00") {
		return fmt.Errorf("exec.env %q: no variable name", v.Name)
	}
	if config.IsReservedVariable(v.Name) {
		return fmt.Errorf("exec.env %q: never given to a program", v.Name)
	}
	value, set := variable(v)
	if !set {
		return nil
	}
	if strings.ContainsRune(value, 0) {
		return fmt.Errorf("exec.env %q: its value has a zero byte", v.Name)
	}
	g.env = append(g.env, v.Name+"="+value)
	g.secrets = append(g.secrets, value)
	return nil
}

// environment is all that the program gets to see of ours.
func (g *program) environment(c Call) []string {
	return append(slices.Clone(g.env),
		"OUTBOX_OPERATION="+c.StatusRef,
		"OUTBOX_TOOL="+c.Tool,
		"OUTBOX_KEY="+c.WireKey,
		"OUTBOX_ATTEMPT="+strconv.Itoa(c.Attempt),
		"OUTBOX_FENCING_TOKEN="+strconv.FormatInt(c.Token, 10),
		"OUTBOX_PURPOSE="+string(c.Purpose),
	)
}

// Execute runs the program once (docs/downstream.md: A program).
func (g *program) Execute(ctx context.Context, c Call) Outcome {
	c.Purpose = Execute
	end := g.run(ctx, c)
	if end.unsent != "" {
		return Outcome{Observed: NotSent, Code: end.unsent, Excerpt: end.note, Answered: true}
	}
	return g.outcome(end, c)
}

// outcome reads the end of a program that ran: its last line decides, else its
// exit status.
func (g *program) outcome(end ending, c Call) Outcome {
	said, word := end.word()
	out := Outcome{Code: end.code(), Answered: end.over}
	switch word {
	case spoken:
		out.Observed, out.Code = said.observed(), "outcome_"+said.Outcome
		out.Result = said.result
		out.RetryAfter, out.HasRetryAfter = said.retryAfter()
	case garbled:
		out.Observed, out.Code = MayHaveHappened, "bad_outcome"
	default:
		out.Observed = g.observed(end)
		out.Result = said.result
	}
	if out.Observed != Succeeded {
		out.Result = nil
	}
	if out.Result == nil {
		out.Excerpt = end.excerpt(newRedactor(g.secrets), said.reason(), c.Arguments)
	}
	return out
}

// observed is the table of exit codes. Everything it does not name may have
// happened; 126 and 127 too, since a shell says them after it did other things.
func (g *program) observed(end ending) Observed {
	switch {
	case end.cutOff != "" || end.signal != 0:
		return MayHaveHappened
	case end.exit == 0:
		return Succeeded
	case slices.Contains(g.rejected, end.exit):
		return Rejected
	case slices.Contains(g.tryAgain, end.exit):
		return TryAgain
	}
	return MayHaveHappened
}

// Ask runs the program once with purpose query. Only an outcome, or exit 0
// without one, is an answer.
func (g *program) Ask(ctx context.Context, c Call) Answer {
	c.Purpose = Query
	end := g.run(ctx, c)
	if end.unsent != "" {
		return Answer{Found: NoAnswer, Code: end.unsent, Excerpt: end.note}
	}
	said, word := end.word()
	a := Answer{Found: NoAnswer, Code: end.code()}
	switch {
	case word == spoken:
		a.Found, a.Code = said.found(), "outcome_"+said.Outcome
		a.RetryAfter, a.HasRetryAfter = said.retryAfter()
	case word == garbled:
		a.Code = "bad_outcome"
	case g.observed(end) == Succeeded:
		a.Found = Applied
	}
	if a.Found == Applied {
		a.Result = said.result
	}
	if a.Result == nil {
		a.Excerpt = end.excerpt(newRedactor(g.secrets), said.reason(), c.Arguments)
	}
	return a
}

// variable is the value of a configured variable, and whether there is one: a
// variable that is passed through may be unset.
func variable(v config.EnvVar) (string, bool) {
	if v.Value == "" {
		return os.LookupEnv(v.Name)
	}
	return v.Value, true
}
