package daemon_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/handler"
)

// pager is a hook's tool: it keeps what it is told and refuses all of it.
type pager struct {
	mu   sync.Mutex // guards told
	told []string
}

func (p *pager) page(_ context.Context, c handler.Call) ([]byte, error) {
	var n struct {
		Event  string `json:"event"`
		Tool   string `json:"tool"`
		Reason string `json:"reason"`
		Ref    string `json:"status_ref"`
	}
	if err := json.Unmarshal(c.Arguments, &n); err != nil {
		return nil, err
	}
	about := "a tool"
	if n.Ref != "" {
		about = "an entry"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, n.Event+" of "+about+" of "+n.Tool+": "+n.Reason)
	return nil, handler.Reject(errors.New("nobody is on call"))
}

func (p *pager) heard() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(slices.Values(p.told))
}

// What the hook is told ends dead itself each time, and nobody is told of that.
func TestTheHookIsToldWhatAPersonShouldKnowAndNothingOfItself(t *testing.T) {
	p := &pager{}
	fails := func(err error) handler.Handler {
		return handler.Func(func(context.Context, handler.Call) ([]byte, error) { return nil, err })
	}
	cfg := settings(t.TempDir())
	cfg.Hook = "page"
	w := run(t, cfg, daemon.Options{Tools: []daemon.Tool{
		{Config: config.Tool{Name: "page", Effect: "idempotent"}, Handler: handler.Func(p.page)},
		{Config: config.Tool{Name: "refuse", Effect: "idempotent"}, Handler: fails(handler.Reject(errors.New("no")))},
		{Config: config.Tool{Name: "lose", Effect: "opaque"}, Handler: fails(errors.New("connection lost"))},
		{Config: config.Tool{Name: "ship", Effect: "idempotent",
			Breaker: config.Breaker{Failures: 1, Window: time.Minute, Cooldown: time.Hour}},
			Handler: fails(handler.Unsent(errors.New("nobody there")))},
	}}).ready()
	for _, tool := range []string{"refuse", "lose", "ship"} {
		_, err := w.client.Submit(t.Context(), request(tool, "order-17"), 0)
		must(t, err)
	}
	eventually(t, "three things are told", func() bool { return len(p.heard()) >= 3 })
	for _, reason := range []string{"for the weekend", "once more"} {
		_, err := w.client.Pause(t.Context(), "ship", reason)
		must(t, err)
	}
	want := []string{
		"breaker_open of a tool of ship: returned", "dead of an entry of refuse: rejected",
		"tool_paused of a tool of ship: for the weekend", "unknown_held of an entry of lose: unproven",
	}
	eventually(t, "four things are told", func() bool { return len(p.heard()) >= len(want) })
	eventually(t, "what was told is dead", func() bool {
		tools, err := w.client.Tools(t.Context())
		must(t, err)
		for _, tool := range tools.Tools {
			if tool.Name == "page" {
				return tool.Load.Dead == int64(len(want)) && tool.Load.Due+tool.Load.InFlight == 0
			}
		}
		return false
	})
	if got := p.heard(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	must(t, w.end())
}
