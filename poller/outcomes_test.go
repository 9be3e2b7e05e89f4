package poller_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledgertest"
)

var update = flag.Bool("update", false, "write docs/outcomes.md from what was observed")

// situation is one thing that may happen to an attempt, with what must be observed
// of it. What follows is not written down here: it is read from the file after the
// attempt was settled.
type situation struct {
	what  string
	class handler.Observed
	code  string
	aim   func(*config.Tool) // at the server or the program where it happens
	hangs bool               // it ends by the attempt's time limit
}

// inquiry is one answer to a question about an attempt.
type inquiry struct {
	what  string
	found handler.Found
	code  string
	after string             // what the attempt came to: an answer, or none
	ask   func(*config.Tool) // where the question is answered
	hangs bool
}

var classes = []entry.Effect{entry.Idempotent, entry.Queryable, entry.Opaque}

// recorder keeps what a handler told, and an asker was told.
type recorder struct {
	handler.Handler
	handler.Asker
	mu  sync.Mutex // guards what follows
	out handler.Outcome
	ans handler.Answer
}

func (r *recorder) Execute(ctx context.Context, c handler.Call) handler.Outcome {
	out := r.Handler.Execute(ctx, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out = out
	return out
}

func (r *recorder) Ask(ctx context.Context, c handler.Call) handler.Answer {
	ans := r.Asker.Ask(ctx, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ans = ans
	return ans
}

// bench is a process with one tool for each situation and class.
type bench struct {
	*world
	tools     []config.Tool
	recorders map[string]*recorder
	ids       map[string]int64
	began     time.Time
}

func newBench(t *testing.T) *bench {
	return &bench{recorders: map[string]*recorder{}, ids: map[string]int64{}, world: &world{t: t}}
}

// add completes the tool as one of the config.
func (b *bench) add(name string, effect entry.Effect, hangs bool, change ...func(*config.Tool)) {
	c := ledgertest.Tool(name, effect)
	c.Retry = config.Retry{Backoff: "constant", Initial: time.Minute, Max: time.Hour, Jitter: "none"}
	if c.Timeout = 30 * time.Second; hangs {
		c.Timeout = 1500 * time.Millisecond
	}
	for _, f := range change {
		f(&c)
	}
	defaults := config.Default()
	c, err := defaults.Tool(c)
	if err != nil {
		b.t.Fatal(err)
	}
	b.tools = append(b.tools, c)
}

// settle has each tool make one attempt, and waits until all are settled.
func (b *bench) settle() {
	b.open()
	b.began = time.Now()
	for _, c := range b.tools {
		b.ids[c.Name] = b.accept(c.Name, "order-17")
	}
	b.run()
	b.await("all attempts are settled", func() bool {
		b.seen.mu.Lock()
		defer b.seen.mu.Unlock()
		return len(b.seen.settled) >= len(b.tools)
	})
}

func (b *bench) await(what string, ok func() bool) {
	b.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(2 * time.Minute); !ok(); {
		select {
		case <-tick.C:
		case <-limit:
			b.t.Fatalf("%s: not within 2m", what)
		}
	}
}

// next says where the entry is now.
func (b *bench) next(tool string) string {
	r := b.entry(b.ids[tool])
	text := string(r.State)
	if r.State == entry.Unknown && r.DueAt.IsZero() {
		text += ", held"
	}
	if r.State == entry.Unknown && !r.DueAt.IsZero() {
		text += ", will be asked"
	}
	if r.Reason != "" && (r.DueAt.IsZero() || r.State == entry.Dead) {
		text += " (" + r.Reason + ")"
	}
	if !r.DueAt.IsZero() {
		text += map[bool]string{true: " when the downstream wants", false: " after the backoff"}[r.DueAt.Sub(b.began) > 5*time.Minute]
	}
	return text
}

func TestOutcomesAreWhatTheDocumentSays(t *testing.T) {
	groups := situations(t)
	b := newBench(t)
	for g, group := range groups {
		for i, s := range group.rows {
			for _, class := range classes {
				b.add(toolOf(g, i, class), class, s.hangs, s.aim)
			}
		}
	}
	b.settle()
	var text strings.Builder
	text.WriteString(preface)
	for g, group := range groups {
		fmt.Fprintf(&text, "\n## %s\n\n", group.title)
		text.WriteString("| situation | observed | code | `idempotent` | `queryable` | `opaque` |\n|---|---|---|---|---|---|\n")
		for i, s := range group.rows {
			b.row(&text, g, i, s)
		}
	}
	answers(t, &text)
	compare(t, "../docs/outcomes.md", text.String())
}

func toolOf(group, row int, class entry.Effect) string {
	return fmt.Sprint(class, "-", group, "-", row)
}

func (b *bench) row(text *strings.Builder, g, i int, s situation) {
	fmt.Fprintf(text, "| %s | %s | `%s` |", s.what, strings.ReplaceAll(string(s.class), "_", " "), s.code)
	for _, class := range classes {
		name := toolOf(g, i, class)
		out := b.recorders[name].out
		if out.Observed != s.class || out.Code != s.code {
			b.t.Errorf("%s (%s): observed %s %s, excerpt %q; want %s %s", s.what, class, out.Observed, out.Code, out.Excerpt, s.class, s.code)
		}
		b.consistent(s.what, class, out, b.entry(b.ids[name]))
		text.WriteString(" " + b.next(name) + " |")
	}
	text.WriteString("\n")
}

// consistent holds what was observed against what is promised, whatever the
// document says.
func (b *bench) consistent(what string, class entry.Effect, out handler.Outcome, r row) {
	b.t.Helper()
	maybe := out.Observed == handler.MayHaveHappened || out.Observed == handler.InProgress
	switch {
	case (r.State == entry.Delivered) != (out.Observed == handler.Succeeded):
		b.t.Errorf("%s (%s): %s is %s", what, class, out.Observed, r.State)
	case r.State == entry.Dead && !r.UnprovenSince.IsZero(), r.State == entry.Dead && maybe:
		b.t.Errorf("%s (%s): dead without proof of no effect", what, class)
	case maybe && class == entry.Opaque && (r.State != entry.Unknown || !r.DueAt.IsZero()):
		b.t.Errorf("%s: what may have happened of an opaque tool is %s, due %v", what, r.State, r.DueAt)
	case out.Observed == handler.NotSent && r.State != entry.Pending:
		b.t.Errorf("%s (%s): not sent, and %s", what, class, r.State)
	}
}

// answers appends the table of questions: each is put about an attempt that may
// have happened, of which an answer came or none.
func answers(t *testing.T, text *strings.Builder) {
	text.WriteString(questions)
	list := inquiries(t)
	b := newBench(t)
	for i, q := range list {
		b.add(fmt.Sprint("asked-", i), entry.Queryable, q.hangs, attempts(t)[q.after], q.ask)
	}
	b.settle()
	for i, q := range list {
		name := fmt.Sprint("asked-", i)
		if err := b.poller.Reconcile(context.Background(), b.ids[name]); err != nil {
			t.Errorf("%s: %v", q.what, err)
			continue
		}
		ans := b.recorders[name].ans
		if ans.Found != q.found || ans.Code != q.code {
			t.Errorf("%s: answer %s %s, want %s %s", q.what, ans.Found, ans.Code, q.found, q.code)
		}
		r := b.entry(b.ids[name])
		if (r.State == entry.Delivered) != (q.found == handler.Applied) {
			t.Errorf("%s: %s is %s", q.what, q.found, r.State)
		}
		if r.State == entry.Pending && (q.found != handler.NotApplied || !r.UnprovenSince.IsZero()) {
			t.Errorf("%s: tried again after %s, unproven since %v", q.what, q.found, r.UnprovenSince)
		}
		next := b.next(name)
		if r.State == entry.Unknown && q.found == handler.NotApplied {
			next = "unknown, will be asked when it may count"
		}
		fmt.Fprintf(text, "| %s | %s | `%s` | %s | %s |\n", q.what, strings.ReplaceAll(string(q.found), "_", " "), q.code, q.after, next)
	}
}

func compare(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	is, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(is) != text {
		t.Errorf("%s is not what was observed; look at it after: go test ./poller -run Outcomes -update\n%s", path, firstDifference(string(is), text))
	}
}

func firstDifference(a, b string) string {
	is, was := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(is), len(was)) {
		if is[i] != was[i] {
			return fmt.Sprintf("line %d is\n%s\nobserved was\n%s", i+1, is[i], was[i])
		}
	}
	return fmt.Sprintf("%d and %d lines", len(is), len(was))
}

const preface = `# Outcomes

Made by ` + "`go test ./poller -run Outcomes -update`" + ` from what it observed: do not edit. Each row was played by a server on a bare TCP connection or by a real program, against the handlers of the daemon, once for each effect class. The last columns are what the file said after the attempt was settled, with failures left in the round; at a limit, "pending" becomes dead or, where an earlier attempt may have happened, unknown and held.

The codes are stable. "Observed" is what decides: *succeeded* is proof of the effect, *rejected*, *try again* and *not sent* are proof that this attempt did nothing, *may have happened* is neither.
`

const questions = `
## Answers to a question

Of a queryable tool whose attempt may have happened. "Not applied" counts when the attempt is known to be over: because an answer came, or because its time limit and ` + "`query.not_before`" + ` have passed.

| situation | answer | code | the attempt had | next |
|---|---|---|---|---|
`
