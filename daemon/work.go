package daemon

import (
	"errors"
	"fmt"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/poller"
)

// Tool is a tool that a program declares itself. What Config leaves out comes
// from the retry and worker sections of the configuration.
type Tool struct {
	Config  config.Tool
	Handler handler.Handler
	Asker   handler.Asker // nil: the tool cannot be asked
}

// ErrNoHandler says that a Tool came without a Handler.
var ErrNoHandler = errors.New("tool has no handler")

// assemble builds the registry and the handlers of the configured tools and of
// those that the program brought. done ends what the handlers keep open.
func assemble(cfg *config.Config, own []Tool) (w *poller.Work, done func(), err error) {
	pairs := pairs{}
	tools := append([]config.Tool(nil), cfg.Tools...)
	if err := pairs.build(cfg.Tools); err != nil {
		pairs.close()
		return nil, nil, err
	}
	for _, t := range own {
		complete, err := cfg.Tool(t.Config)
		if err != nil {
			pairs.close()
			return nil, nil, fmt.Errorf("complete tool %s: %w", t.Config.Name, err)
		}
		if t.Handler == nil {
			pairs.close()
			return nil, nil, fmt.Errorf("tool %s: %w", t.Config.Name, ErrNoHandler)
		}
		pairs[t.Config.Name] = handler.Pair{Handler: t.Handler, Asker: t.Asker}
		tools = append(tools, complete)
	}
	registry, err := contract.NewRegistry(tools)
	if err != nil {
		pairs.close()
		return nil, nil, fmt.Errorf("register tools: %w", err)
	}
	return &poller.Work{Registry: registry, Handlers: pairs}, pairs.close, nil
}

// pairs are the handlers by tool.
type pairs map[string]handler.Pair

func (p pairs) build(tools []config.Tool) (err error) {
	for _, t := range tools {
		if p[t.Name], err = handler.Build(t); err != nil {
			return fmt.Errorf("build handler of tool %s: %w", t.Name, err)
		}
	}
	return nil
}

func (p pairs) close() {
	for _, pair := range p {
		pair.Close()
	}
}
