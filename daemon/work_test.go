package daemon

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/handler"
)

type asker struct{}

func (asker) Ask(context.Context, handler.Call) handler.Answer { return handler.Answer{} }

func TestWhatAToolOfAProgramNeeds(t *testing.T) {
	do := handler.Func(func(context.Context, handler.Call) ([]byte, error) { return nil, nil })
	overHTTP := &config.Query{HTTP: &config.HTTP{URL: "http://127.0.0.1:1/{key}"}}
	withProgram := &config.Query{Exec: &config.Exec{Argv: []string{"/bin/true"}}}
	times := &config.Query{NotBefore: time.Second}
	for _, c := range []struct {
		name  string
		tool  Tool
		want  error
		asked bool
	}{
		{"nothing", Tool{}, ErrNoHandler, false},
		{"a handler", Tool{Handler: do}, nil, false},
		{"an asker", Tool{Handler: do, Asker: asker{}}, nil, true},
		{"an asker and times", Tool{Config: config.Tool{Query: times}, Handler: do, Asker: asker{}}, nil, true},
		{"a query over HTTP", Tool{Config: config.Tool{Query: overHTTP}, Handler: do}, nil, true},
		{"a query with a program", Tool{Config: config.Tool{Query: withProgram}, Handler: do}, nil, true},
		{"two ways to ask", Tool{Config: config.Tool{Query: overHTTP}, Handler: do, Asker: asker{}}, ErrTwoAskers, false},
		{"times of nobody", Tool{Config: config.Tool{Query: times}, Handler: do}, ErrNoAsker, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config.Default()
			c.tool.Config.Name, c.tool.Config.Timeout = "mine", 7*time.Second
			if c.asked {
				c.tool.Config.Effect = "queryable"
			}
			w, done, err := assemble(&cfg, []Tool{c.tool})
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err != nil {
				return
			}
			defer done()
			rules, _ := w.Registry.Lookup("mine")
			if got := w.Handlers["mine"].Asker != nil; got != c.asked || (rules.Query != nil) != c.asked {
				t.Errorf("it has an asker: %v, a rule for it: %v, want %v", got, rules.Query != nil, c.asked)
			}
			if c.asked && (rules.Query.Timeout != 7*time.Second || c.tool.Config.Query == nil && rules.Query.NotBefore != 7*time.Second) {
				t.Errorf("times of its questions are %+v, want those of the tool", *rules.Query)
			}
		})
	}
}

func TestSlotsFollowFromTheFilesThatMayBeOpen(t *testing.T) {
	for _, c := range []struct {
		files      uint64
		want, have int
	}{
		{1024, 32, 32}, {160, 32, 32}, {159, 32, 31}, {67, 32, 1}, {10, 32, 1}, {0, 1, 1}, {1024, 10000, 320},
		{math.MaxUint64, 10000, 10000},
	} {
		if got := slotsWithin(c.files, c.want); got != c.have {
			t.Errorf("%d files for a concurrency of %d: got %d slots, want %d", c.files, c.want, got, c.have)
		}
	}
}

func TestSectionsThatNeedARestart(t *testing.T) {
	old, cfg := config.Default(), config.Default()
	cfg.Worker.PerTool++
	cfg.Retry.MaxAttempts++
	cfg.Operators.UIDs = []int{1}
	if got := restarts(&old, &cfg); got != nil {
		t.Errorf("what a reload takes along needs a restart of %v", got)
	}
	cfg.Worker.Concurrency++
	cfg.Lease.TTL++
	cfg.Log.Level = "debug"
	cfg.Listen.Socket = "/elsewhere"
	cfg.Database.Path = "/elsewhere"
	if got := restarts(&old, &cfg); !slices.Equal(got, []string{"database", "listen", "log", "worker", "lease"}) {
		t.Errorf("got %v, want every section", got)
	}
}
