package handler

import (
	"errors"
	"fmt"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// Pair is what one configured tool can do.
type Pair struct {
	Handler Handler
	Local   Local                               // of a local tool, in the place of Handler
	BuiltIn func(tx *ledger.Tx, c Call) Outcome // of a local tool of outboxd's own, in the place of Local
	Asker   Asker                               // nil when the tool has no query
	close   []func()
}

// Close drops idle connections. Calls that still run are not disturbed, so a
// reload may close a pair at once.
func (p Pair) Close() {
	for _, f := range p.close {
		f()
	}
}

// Build makes the handlers of a tool from its config and reads the files named
// there (header values, certificates). The error names the field that cannot
// be right, never a value.
func Build(t config.Tool) (Pair, error) {
	var p Pair
	if err := p.execute(t); err != nil {
		return Pair{}, fmt.Errorf("build handler of tool %q: %w", t.Name, err)
	}
	if t.Query == nil {
		return p, nil
	}
	if err := p.query(*t.Query); err != nil {
		p.Close()
		return Pair{}, fmt.Errorf("build query of tool %q: %w", t.Name, err)
	}
	return p, nil
}

// BuildAsker is Build for a query alone, of a tool whose handler is in Go.
func BuildAsker(tool string, q config.Query) (Pair, error) {
	var p Pair
	if err := p.query(q); err != nil {
		return Pair{}, fmt.Errorf("build query of tool %q: %w", tool, err)
	}
	return p, nil
}

func (p *Pair) execute(t config.Tool) error {
	switch {
	case t.HTTP != nil:
		// A server that closes an idle connection just as a request goes out
		// leaves an outcome that nobody can tell. An opaque entry would then
		// wait for a person, so its requests never share a connection.
		reuse := 0
		if t.Effect != string(entry.Opaque) {
			reuse = max(t.Concurrency, 1)
		}
		e, err := newEndpoint(*t.HTTP, reuse)
		if err != nil {
			return err
		}
		p.Handler, p.close = e, append(p.close, e.wire.close)
	case t.Exec != nil:
		g, err := newProgram(*t.Exec)
		if err != nil {
			return err
		}
		p.Handler = g
	case t.SQL != nil:
		s, err := newScript(*t.SQL)
		if err != nil {
			return err
		}
		p.Local = s
	default:
		return errors.New("neither http, exec nor sql is configured")
	}
	return nil
}

func (p *Pair) query(q config.Query) error {
	switch {
	case q.HTTP != nil:
		// Go resends a GET when a reused connection breaks: no reuse.
		e, err := newEndpoint(*q.HTTP, 0)
		if err != nil {
			return err
		}
		p.Asker, p.close = question{e}, append(p.close, e.wire.close)
	case q.Exec != nil:
		g, err := newProgram(*q.Exec)
		if err != nil {
			return err
		}
		p.Asker = g
	default:
		return errors.New("neither http nor exec is configured")
	}
	return nil
}
