package handler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// funcGrace is what a function has after its context ended.
	funcGrace = time.Second
	// maxReport bounds Outcome.Err, so that a log line stays below 8 KiB.
	maxReport = 4 << 10
)

// Func is a tool written in Go: it produces the effect and returns a result as
// JSON, or nil. A nil error is proof of the effect. Reject, Again, Unsent and
// Ongoing say what else is known; any other error, and a panic, may have
// happened. A Func is a Handler; Supervised is one that also counts.
type Func func(ctx context.Context, c Call) ([]byte, error)

// Execute calls f as Supervised does.
func (f Func) Execute(ctx context.Context, c Call) Outcome {
	return (&Supervised{Do: f}).Execute(ctx, c)
}

// verdict is an error that says what was observed.
type verdict struct {
	observed Observed
	after    time.Duration
	wait     bool
	err      error
}

func (v *verdict) Error() string { return string(v.observed) + ": " + v.err.Error() }
func (v *verdict) Unwrap() error { return v.err }

// say makes a verdict; without a cause the verdict is the whole story.
func say(v verdict) error {
	if v.err == nil {
		v.err = errors.New("no reason given")
	}
	return &v
}

// Reject says that the effect was refused and did not happen.
func Reject(err error) error { return say(verdict{observed: Rejected, err: err}) }

// Again says that nothing was done and may be tried after the given time; a
// negative time leaves it to the retry policy.
func Again(err error, after time.Duration) error {
	return say(verdict{observed: TryAgain, err: err, after: max(after, 0), wait: after >= 0})
}

// Unsent says that nothing was handed to the outside.
func Unsent(err error) error { return say(verdict{observed: NotSent, err: err}) }

// Ongoing says that the downstream is still at work on this key.
func Ongoing(err error) error { return say(verdict{observed: InProgress, err: err}) }

// Supervised runs a Go function where it can do no harm: a panic is an
// observation, and a function that ignores its context is left behind.
type Supervised struct {
	Do    Func
	Grace time.Duration // what Do has after its context ended; 0 = 1s

	abandoned atomic.Int64
}

// Abandoned is the number of calls that were left behind and still run. Each
// holds a goroutine and whatever the function holds.
func (s *Supervised) Abandoned() int64 { return s.abandoned.Load() }

// Execute calls the function on a goroutine of its own and returns at the
// latest a grace after the context ended; the outcome of a call that still
// runs then is MayHaveHappened with code abandoned.
func (s *Supervised) Execute(ctx context.Context, c Call) Outcome {
	if ctx.Err() != nil {
		return Outcome{Observed: NotSent, Code: endedBy(ctx), Answered: true}
	}
	c.Arguments = bytes.Clone(c.Arguments) // a late function must not see the next attempt's
	raw, err := supervise(ctx, cmp.Or(s.Grace, funcGrace), &s.abandoned, func() ([]byte, error) { return s.Do(ctx, c) })
	if err != nil {
		return failed(ctx, err, c.Arguments)
	}
	out := Outcome{Observed: Succeeded, Code: "returned", Result: canonical(raw), Answered: true}
	if out.Result == nil {
		out.Excerpt = newRedactor(nil).head(raw, c.Arguments)
	}
	return out
}

func failed(ctx context.Context, err error, ours []byte) Outcome {
	out := Outcome{Observed: MayHaveHappened, Code: "error", Err: bound(err), Answered: true}
	var v *verdict
	switch {
	case errors.As(err, &v):
		out.Observed, out.Code = v.observed, "returned"
		out.RetryAfter, out.HasRetryAfter = v.after, v.wait
		err = v.err
	case errors.Is(err, errAbandoned):
		out.Code, out.Answered = "abandoned", false
	case errors.Is(err, errPanic):
		// The value of a panic may hold anything: it is for the log only.
		out.Code, err = "panic", errPanic
	case ctx.Err() != nil:
		out.Code = endedBy(ctx)
	}
	out.Excerpt = newRedactor(nil).head([]byte(err.Error()), ours)
	return out
}

// report is an error for the log, cut to maxReport.
type report struct {
	text string
	err  error
}

func (r *report) Error() string { return r.text }
func (r *report) Unwrap() error { return r.err }

func bound(err error) error {
	text := err.Error()
	if len(text) <= maxReport {
		return err
	}
	return &report{text[:maxReport] + cutMark, err}
}

// AskFunc is a status query written in Go. It is an Asker under the same
// protection as a Func; an error, a panic and a call that had to be left
// behind are no answer.
type AskFunc func(ctx context.Context, c Call) (Answer, error)

// Ask calls f.
func (f AskFunc) Ask(ctx context.Context, c Call) Answer {
	var left atomic.Int64
	c.Arguments = bytes.Clone(c.Arguments)
	a, err := supervise(ctx, funcGrace, &left, func() (Answer, error) { return f(ctx, c) })
	if err != nil {
		out := failed(ctx, err, c.Arguments)
		return Answer{
			Found: NoAnswer, Code: out.Code, Excerpt: out.Excerpt, Err: out.Err,
			RetryAfter: out.RetryAfter, HasRetryAfter: out.HasRetryAfter,
		}
	}
	a.Result = canonical(a.Result)
	a.Excerpt = newRedactor(nil).head([]byte(a.Excerpt), c.Arguments)
	return a
}

var (
	errAbandoned = errors.New("the function did not end with its context")
	errPanic     = errors.New("the function panicked")
	errGoexit    = errors.New("the function ended its goroutine")
)

type returned[T any] struct {
	value T
	err   error
}

// supervise runs fn on a goroutine of its own and waits until a grace after the
// context ended. It is the one place where a goroutine may outlive its owner:
// nothing else helps against a function that does not return. left counts
// those that still run.
func supervise[T any](ctx context.Context, grace time.Duration, left *atomic.Int64, fn func() (T, error)) (T, error) {
	done := make(chan returned[T], 1)
	var over atomic.Bool // set by whoever is first: the function, or we who leave it
	go func() {
		r := returned[T]{err: errGoexit}
		defer func() {
			if value := recover(); value != nil {
				r.err = panicked(value)
			}
			done <- r
			if !over.CompareAndSwap(false, true) {
				left.Add(-1)
			}
		}()
		r.value, r.err = fn()
	}()
	if r, ok := await(ctx, grace, done); ok {
		return r.value, r.err
	}
	left.Add(1)
	if over.CompareAndSwap(false, true) {
		return *new(T), errAbandoned
	}
	left.Add(-1) // it returned at the last moment
	r := <-done
	return r.value, r.err
}

func await[T any](ctx context.Context, grace time.Duration, done <-chan T) (r T, ok bool) {
	select {
	case r = <-done:
		return r, true
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case r = <-done:
		return r, true
	case <-timer.C:
		return r, false
	}
}

// panicked keeps the value and the stack of a panic for the log.
func panicked(value any) error {
	stack := make([]byte, maxReport-1024)
	stack = stack[:runtime.Stack(stack, false)]
	text := fmt.Sprint(value)
	if len(text) > 512 {
		text = text[:512] + cutMark
	}
	return fmt.Errorf("%w: %s\n%s", errPanic, text, stack)
}
