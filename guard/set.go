package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
)

// The reasons of guards.
const (
	Denied = "authorization_denied" // it may not be done, or nobody could say that it may
	Failed = "precondition_failed"  // it makes no sense any more, or nobody could say that it does
)

// Guard is a check in Go. A nil error is yes; whatever else is a refusal. Its text
// is logged nowhere and shown to nobody.
type Guard interface {
	Check(ctx context.Context, c handler.Call) error
}

// Own is a guard that an embedding program brings. They are asked after the
// configured ones.
type Own struct {
	Purpose handler.Purpose // Authorize or Validate
	Guard   Guard
	Timeout time.Duration // 0: the tool's
}

// Roles tells which roles a tool's principal has now. Nothing is kept of what it
// says. An error refuses.
type Roles interface {
	Roles(ctx context.Context, s contract.Scope) ([]string, error)
}

// Set is what has to agree before an effect of one tool. The nil Set agrees to
// everything. It never changes.
type Set struct {
	bound []bound
	local bool
	done  []func()
}

// bound is one guard: of static, sel, checker and own one is set.
type bound struct {
	name    string // what a refusal calls it
	purpose handler.Purpose
	limit   time.Duration
	static  []string
	sel     *handler.Select
	checker handler.Checker
	own     Guard
}

// Build makes the guards of a tool. With staticOnly those that ask nobody: a command
// that calls no handler need not be able to read secrets.
func Build(t config.Tool, own []Own, staticOnly bool) (*Set, error) {
	s := &Set{local: t.Effect == string(entry.Local)}
	for i, g := range t.Guards {
		if staticOnly && g.Static == nil {
			continue
		}
		b, err := s.build(g)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("build guards[%d] of tool %q: %w", i, t.Name, err)
		}
		b.name = fmt.Sprintf("guard %d (%s)", i+1, b.name)
		b.purpose, b.limit = handler.Purpose(g.Purpose), contract.GuardLimit(t, g)
		s.bound = append(s.bound, b)
	}
	for i, o := range own {
		if staticOnly {
			break
		}
		if o.Guard == nil || o.Purpose != handler.Authorize && o.Purpose != handler.Validate {
			s.Close()
			return nil, fmt.Errorf("build own guard %d of tool %q: it needs a check, and a purpose of authorize or validate", i+1, t.Name)
		}
		limit := o.Timeout
		if limit <= 0 {
			limit = t.Timeout
		}
		s.bound = append(s.bound, bound{name: fmt.Sprintf("own guard %d", i+1), purpose: o.Purpose, limit: limit, own: o.Guard})
	}
	if len(s.bound) == 0 {
		return nil, nil
	}
	return s, nil
}

func (s *Set) build(g config.Guard) (b bound, err error) {
	switch {
	case g.Static != nil:
		return bound{name: "static", static: g.Static.Roles}, nil
	case g.SQL != nil:
		b.name = "sql"
		b.sel, err = handler.NewSelect(g.SQL.Select)
		return b, err
	}
	b.name = "exec"
	if g.HTTP != nil {
		b.name = "http"
	}
	var done func()
	b.checker, done, err = handler.BuildChecker(g)
	if err == nil {
		s.done = append(s.done, done)
	}
	return b, err
}

// Close drops idle connections.
func (s *Set) Close() {
	if s == nil {
		return
	}
	for _, f := range s.done {
		f()
	}
}

// Question is what a Set is asked.
type Question struct {
	Call  handler.Call
	File  *ledger.Ledger // that sql guards ask
	Roles Roles
}

// Effect asks every guard in its order, in front of an effect and outside of any
// transaction, but for the sql guards of a local tool, which Inside asks. A refusal
// is a *Refusal.
func (s *Set) Effect(ctx context.Context, q Question) error {
	return s.ask(ctx, q, func(b *bound) bool { return !s.local || b.sel == nil })
}

// Accept asks those of a purpose, in front of an accept and outside of any
// transaction.
func (s *Set) Accept(ctx context.Context, q Question, purpose handler.Purpose) error {
	return s.ask(ctx, q, func(b *bound) bool { return b.purpose == purpose })
}

// Static asks only those that the roles decide.
func (s *Set) Static(ctx context.Context, q Question) error {
	return s.ask(ctx, q, func(b *bound) bool { return b.static != nil })
}

// Inside asks the sql guards of a local tool, in the transaction of its effect.
func (s *Set) Inside(q ledger.Querier, c handler.Call) error {
	if s == nil || !s.local {
		return nil
	}
	for i := range s.bound {
		b := &s.bound[i]
		if b.sel == nil {
			continue
		}
		yes, err := b.sel.Check(q, b.call(c))
		if err := b.verdict(yes, err); err != nil {
			return err
		}
	}
	return nil
}

func (s *Set) ask(ctx context.Context, q Question, which func(*bound) bool) error {
	if s == nil {
		return nil
	}
	for i := range s.bound {
		b := &s.bound[i]
		if !which(b) {
			continue
		}
		yes, err := b.within(ctx, q)
		if err := b.verdict(yes, err); err != nil {
			return err
		}
	}
	return nil
}

// within bounds what may take time.
func (b *bound) within(ctx context.Context, q Question) (bool, error) {
	if _, configured := q.Roles.(Configured); b.static != nil && configured {
		return b.ask(ctx, q) // it asks nobody
	}
	limited, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	return b.ask(limited, q)
}

func (b *bound) ask(ctx context.Context, q Question) (yes bool, err error) {
	defer func() {
		if recover() != nil {
			yes, err = false, errors.New("panic")
		}
	}()
	c := b.call(q.Call)
	switch {
	case b.static != nil:
		if q.Roles == nil {
			return false, nil
		}
		has, err := q.Roles.Roles(ctx, contract.Scope{Tenant: c.Tenant, Subject: c.Subject, Tool: c.Tool, Key: c.Key})
		if err != nil {
			return false, errors.New("roles")
		}
		return slices.ContainsFunc(has, func(role string) bool { return slices.Contains(b.static, role) }), nil
	case b.sel != nil:
		err = q.File.Read(ctx, func(v *ledger.View) error {
			yes, err = b.sel.Check(v, c)
			return err
		})
		if err != nil {
			err = errors.New("sql")
		}
		return yes, err
	case b.own != nil:
		if b.own.Check(ctx, c) != nil {
			return false, nil
		}
		return ctx.Err() == nil, nil
	}
	return b.checker.Check(ctx, c)
}

func (b *bound) call(c handler.Call) handler.Call {
	c.Purpose = b.purpose
	return c
}

// verdict makes a refusal of everything but yes.
func (b *bound) verdict(yes bool, err error) error {
	if yes && err == nil {
		return nil
	}
	what := b.name + " says no"
	if err != nil {
		what = b.name + " could not be asked: " + err.Error()
	}
	reason := Failed
	if b.purpose == handler.Authorize {
		reason = Denied
	}
	return &Refusal{reason, what}
}
