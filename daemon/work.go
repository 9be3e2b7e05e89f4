package daemon

import (
	"errors"
	"fmt"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/hook"
	"github.com/outboxd/outboxd/poller"
	"github.com/outboxd/outboxd/projection"
)

// Tool is a tool that a program declares itself. What Config leaves out comes
// from the retry and worker sections of the configuration. A tool that can be
// asked has an Asker, or a Config.Query that names what to ask over HTTP or with a
// program; beside an Asker, Config.Query may hold the times.
type Tool struct {
	Config  config.Tool
	Handler handler.Handler
	Local   handler.Local // of a tool whose Config.Effect is local, in the place of Handler
	Asker   handler.Asker // nil: Config.Query is asked; without one the tool cannot be
	Guards  []guard.Own   // asked after those of Config
}

// What a Tool can lack or have twice.
var (
	ErrNoHandler = errors.New("tool has no handler")
	ErrNotLocal  = errors.New("effect local goes with a local handler, and no other effect does")
	ErrNoAsker   = errors.New("tool has a query, but neither http nor exec nor an asker to ask with")
	ErrTwoAskers = errors.New("tool has an asker and a query with http or exec: one of them")
)

// complete is the tool with all that it does not say.
func (t Tool) complete(cfg *config.Config) (config.Tool, error) {
	c := t.Config
	if c.Query == nil && t.Asker != nil {
		c.Query = &config.Query{}
	}
	c, err := cfg.Tool(c)
	if err != nil {
		return c, fmt.Errorf("complete tool %s: %w", t.Config.Name, err)
	}
	return c, nil
}

// pair is what the tool can do; c is the complete tool.
func (t Tool) pair(c config.Tool) (handler.Pair, error) {
	target := c.Query != nil && (c.Query.HTTP != nil || c.Query.Exec != nil)
	switch {
	case t.Handler == nil && t.Local == nil:
		return handler.Pair{}, fmt.Errorf("tool %s: %w", c.Name, ErrNoHandler)
	case (t.Local != nil) != (c.Effect == string(entry.Local)), t.Local != nil && t.Handler != nil:
		return handler.Pair{}, fmt.Errorf("tool %s: %w", c.Name, ErrNotLocal)
	case target && t.Asker != nil:
		return handler.Pair{}, fmt.Errorf("tool %s: %w", c.Name, ErrTwoAskers)
	case c.Query != nil && !target && t.Asker == nil:
		return handler.Pair{}, fmt.Errorf("tool %s: %w", c.Name, ErrNoAsker)
	case !target:
		return handler.Pair{Handler: t.Handler, Local: t.Local, Asker: t.Asker}, nil
	}
	p, err := handler.BuildAsker(c.Name, *c.Query)
	p.Handler = t.Handler
	return p, err
}

// register builds the registry of the configured tools, of the built-in one, and of
// those that the program brought, which come last in tools.
func register(cfg *config.Config, own []Tool) (r *contract.Registry, tools []config.Tool, err error) {
	project, err := projection.Declare(cfg)
	if err != nil {
		return nil, nil, err
	}
	tools = append(append(tools, cfg.Tools...), project)
	for _, t := range own {
		c, err := t.complete(cfg)
		if err != nil {
			return nil, nil, err
		}
		tools = append(tools, c)
	}
	if r, err = contract.NewRegistry(tools); err != nil {
		return nil, nil, fmt.Errorf("register tools: %w", err)
	}
	return r.WithProviders(cfg.Providers), tools, nil
}

// assemble is register with the handlers. done ends what they keep open.
func assemble(cfg *config.Config, own []Tool) (w *poller.Work, done func(), err error) {
	registry, tools, err := register(cfg, own)
	if err != nil {
		return nil, nil, err
	}
	pairs := pairs{}
	if err := pairs.build(tools, own); err != nil {
		pairs.close()
		return nil, nil, fmt.Errorf("build handlers: %w", err)
	}
	guards, err := guardsOf(tools, own, false)
	if err != nil {
		pairs.close()
		return nil, nil, err
	}
	w = &poller.Work{Registry: registry, Handlers: pairs, Hook: hook.New(registry, cfg.Hook), Guards: guards, Roles: guard.Configured(cfg.Principals)}
	return w, func() { pairs.close(); guards.close() }, nil
}

// guards are the guards by tool; a tool without any has none.
type guards map[string]*guard.Set

// guardsOf makes the guards of each tool, the last of which are own.
func guardsOf(tools []config.Tool, own []Tool, staticOnly bool) (guards, error) {
	all := guards{}
	first := len(tools) - len(own)
	for i, t := range tools {
		var brought []guard.Own
		if i >= first {
			brought = own[i-first].Guards
		}
		set, err := guard.Build(t, brought, staticOnly)
		if err != nil {
			all.close()
			return nil, err
		}
		if set != nil {
			all[t.Name] = set
		}
	}
	return all, nil
}

func (g guards) close() {
	for _, set := range g {
		set.Close()
	}
}

// pairs are the handlers by tool.
type pairs map[string]handler.Pair

// build makes the pair of each tool, the last of which are own.
func (p pairs) build(tools []config.Tool, own []Tool) (err error) {
	first := len(tools) - len(own)
	for i, t := range tools {
		switch {
		case i >= first:
			p[t.Name], err = own[i-first].pair(t)
		case t.Name == projection.ToolName:
			p[t.Name] = handler.Pair{BuiltIn: projection.Project}
		default:
			p[t.Name], err = handler.Build(t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p pairs) close() {
	for _, pair := range p {
		pair.Close()
	}
}
