package handler_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxd/outboxd/handler"
)

func TestFunctionSaysWhatHappened(t *testing.T) {
	cause := errors.New("no such\naccount")
	tests := map[string]struct {
		result []byte
		err    error
		want   handler.Observed
		code   string
		after  time.Duration
	}{
		"nil":           {want: handler.Succeeded, code: "returned"},
		"result":        {result: []byte(`{"a": 1}`), want: handler.Succeeded, code: "returned"},
		"error":         {err: cause, want: handler.MayHaveHappened, code: "error"},
		"reject":        {err: handler.Reject(cause), want: handler.Rejected, code: "returned"},
		"again":         {err: handler.Again(cause, time.Minute), want: handler.TryAgain, code: "returned", after: time.Minute},
		"unsent":        {err: handler.Unsent(cause), want: handler.NotSent, code: "returned"},
		"ongoing":       {err: handler.Ongoing(cause), want: handler.InProgress, code: "returned"},
		"no cause":      {err: handler.Reject(nil), want: handler.Rejected, code: "returned"},
		"wrapped again": {err: errors.Join(errors.New("x"), handler.Again(cause, 0)), want: handler.TryAgain, code: "returned"},
	}
	for name, tt := range tests {
		f := handler.Func(func(context.Context, handler.Call) ([]byte, error) { return tt.result, tt.err })
		out := f.Execute(within(t, time.Minute), call())
		if out.Observed != tt.want || out.Code != tt.code || out.RetryAfter != tt.after || !out.Answered {
			t.Errorf("%s: got %+v, want %s %s", name, out, tt.want, tt.code)
		}
		if tt.err != nil && name != "no cause" && out.Excerpt != `no such\naccount` {
			t.Errorf("%s: excerpt %q", name, out.Excerpt)
		}
		if tt.result != nil && string(out.Result) != `{"a":1}` {
			t.Errorf("%s: result %s", name, out.Result)
		}
	}
}

func TestPanicIsAnObservationAndItsValueStaysInTheLog(t *testing.T) {
	secret := "pw-7 " + strings.Repeat("x", 1<<20)
	f := handler.Func(func(context.Context, handler.Call) ([]byte, error) { panic(secret) })
	out := f.Execute(within(t, time.Minute), call())
	if out.Observed != handler.MayHaveHappened || out.Code != "panic" || strings.Contains(out.Excerpt, "pw-7") {
		t.Errorf("observed %s, code %s, excerpt %q", out.Observed, out.Code, out.Excerpt)
	}
	if text := out.Err.Error(); !strings.Contains(text, "pw-7") || !strings.Contains(text, "func_test.go") || len(text) > 5000 {
		t.Errorf("error of %d bytes: %.300s", len(text), text)
	}
	ask := handler.AskFunc(func(context.Context, handler.Call) (handler.Answer, error) { panic(secret) })
	if a := ask.Ask(within(t, time.Minute), call()); a.Found != handler.NoAnswer || a.Code != "panic" || a.Err == nil {
		t.Errorf("answer %s, code %s", a.Found, a.Code)
	}
}

func TestFunctionThatEndsItsGoroutine(t *testing.T) {
	f := handler.Func(func(context.Context, handler.Call) ([]byte, error) { runtime.Goexit(); return nil, nil })
	if out := f.Execute(within(t, time.Minute), call()); out.Observed != handler.MayHaveHappened || out.Code != "error" {
		t.Errorf("outcome %+v", out)
	}
}

func TestFunctionThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &handler.Supervised{Grace: 3 * time.Second, Do: func(context.Context, handler.Call) ([]byte, error) {
			<-release
			return nil, nil
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		out := s.Execute(ctx, call())
		if took := time.Since(began); took != 13*time.Second {
			t.Errorf("left after %v, want the limit and the grace", took)
		}
		if out.Observed != handler.MayHaveHappened || out.Code != "abandoned" || out.Answered {
			t.Errorf("outcome %+v", out)
		}
		if n := s.Abandoned(); n != 1 {
			t.Errorf("%d abandoned while it runs", n)
		}
		close(release)
		synctest.Wait()
		if n := s.Abandoned(); n != 0 {
			t.Errorf("%d abandoned after it returned", n)
		}
	})
}

func TestFunctionThatEndsInItsGraceIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			err  error
			want handler.Observed
			code string
		}{
			{nil, handler.Succeeded, "returned"},
			{context.DeadlineExceeded, handler.MayHaveHappened, "timeout"},
			{handler.Unsent(errors.New("stopped")), handler.NotSent, "returned"},
		} {
			s := &handler.Supervised{Do: func(ctx context.Context, _ handler.Call) ([]byte, error) {
				<-ctx.Done()
				return nil, tt.err
			}}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			out := s.Execute(ctx, call())
			cancel()
			if out.Observed != tt.want || out.Code != tt.code || s.Abandoned() != 0 {
				t.Errorf("error %v: %+v", tt.err, out)
			}
		}
	})
}

func TestFunctionCannotChangeTheStoredBytes(t *testing.T) {
	c := call()
	before := string(c.Arguments)
	handler.Func(func(_ context.Context, c handler.Call) ([]byte, error) {
		clear(c.Arguments)
		return nil, nil
	}).Execute(within(t, time.Minute), c)
	if string(c.Arguments) != before {
		t.Errorf("the arguments became %q", c.Arguments)
	}
}

func TestFunctionAsked(t *testing.T) {
	ask := handler.AskFunc(func(_ context.Context, c handler.Call) (handler.Answer, error) {
		return handler.Answer{Found: handler.Applied, Result: []byte(`{"b": 1, "a": 2}`)}, nil
	})
	if a := ask.Ask(within(t, time.Minute), call()); a.Found != handler.Applied || string(a.Result) != `{"a":2,"b":1}` {
		t.Errorf("answer %+v", a)
	}
}
