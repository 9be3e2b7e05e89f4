package contract

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outboxd/outboxd/backoff"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/entry"
)

// Tool is a named kind of effect and the contract that it works under.
type Tool struct {
	Name        string
	Effect      entry.Effect
	Wire        WireMode
	Revisions   Revisions
	Retry       Retry
	KeyWindow   time.Duration // how long the downstream remembers a key; 0: for ever
	Timeout     time.Duration // of one attempt
	Query       *QueryRule    // nil: the downstream cannot be asked
	Concurrency int           // attempts at a time
	Rate        Rate
	Input       *Schema       // of the arguments; nil: anything
	Output      *Schema       // of the result; nil: anything
	Approval    ApprovalRule  // whether a person has to agree
	GuardTime   time.Duration // what the guards may take in all

	Breaker       Breaker
	UnknownBudget Budget
}

// Breaker leaves a destination alone after that many failures in a row (not sent,
// server errors, time limits) within a window, for a cooldown. Zero: there is none.
type Breaker struct {
	Failures int
	Window   time.Duration
	Cooldown time.Duration
}

// Budget is how many entries may become unknown within a time before the tool is
// paused. Zero: any number.
type Budget struct {
	Count int
	Per   time.Duration
}

// ApprovalRule is the rule of a tool about a person's word.
type ApprovalRule struct {
	Mode         ApprovalMode
	ExpiresAfter time.Duration // how long one is waited for, and how long it then holds; 0: for ever
}

// Needed reports whether an operation waits for an approval.
func (r ApprovalRule) Needed() bool { return r.Mode == ApprovalRequired || r.Mode == ApprovalAtEffect }

// ApprovalMode says when a person has to have agreed.
type ApprovalMode string

// The modes.
const (
	ApprovalNone     ApprovalMode = "none"
	ApprovalRequired ApprovalMode = "required"  // before it is worked on
	ApprovalAtEffect ApprovalMode = "at_effect" // and it still holds right before each effect
)

func approvalMode(t config.Tool) ApprovalMode {
	if t.Approval.Mode == "" {
		return ApprovalNone
	}
	return ApprovalMode(t.Approval.Mode)
}

// Retry says when a tool is tried again, and the limits per round.
type Retry struct {
	Backoff                            backoff.Policy
	MaxAttempts, MaxLapses, MaxQueries int
	MaxAge                             time.Duration
}

// QueryRule says how long a status query may take, and how long after an
// attempt's time limit a "not applied" counts.
type QueryRule struct{ Timeout, NotBefore time.Duration }

// Rate is how many attempts may start in a time; zero is no limit.
type Rate struct {
	Events int
	Per    time.Duration
}

// Registry holds the tools of one configuration. It never changes: a reload
// makes another one. The tools that it hands out are shared and only read.
type Registry struct {
	tools map[string]*Tool
	names []string

	providers []config.Provider
}

// NewRegistry makes the registry of resolved tools (of a config.Config, or
// completed by its Tool method). It refuses two tools of one name, and all
// mistakes of all tools at once; the error quotes no URL and no argument.
func NewRegistry(tools []config.Tool) (*Registry, error) {
	r := &Registry{tools: make(map[string]*Tool, len(tools))}
	var problems []error
	for _, declared := range tools {
		tool, err := newTool(declared)
		if err == nil && r.tools[tool.Name] != nil {
			err = errors.New("another tool has this name")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("register tool %q: %w", declared.Name, err))
			continue
		}
		r.tools[tool.Name] = tool
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	r.names = slices.Sorted(maps.Keys(r.tools))
	return r, nil
}

// Lookup finds a tool by its exact name.
func (r *Registry) Lookup(name string) (*Tool, bool) {
	tool, ok := r.tools[name]
	return tool, ok
}

// Names lists the tools in order. The slice is the caller's.
func (r *Registry) Names() []string { return slices.Clone(r.names) }

func newTool(t config.Tool) (*Tool, error) {
	if err := check(t); err != nil {
		return nil, err
	}
	input, err := readSchema(t.InputSchema)
	if err != nil {
		return nil, fmt.Errorf("input_schema: %w", err)
	}
	output, err := readSchema(t.OutputSchema)
	if err != nil {
		return nil, fmt.Errorf("output_schema: %w", err)
	}
	revisions, err := revisions(t, input, output)
	if err != nil {
		return nil, err
	}
	tool := &Tool{
		Name: t.Name, Effect: entry.Effect(t.Effect), Wire: WireMode(t.WireKey), Revisions: revisions,
		Retry: retry(t.Retry), KeyWindow: t.KeyWindow, Timeout: t.Timeout, Concurrency: t.Concurrency,
		Rate: Rate(t.Rate), Breaker: Breaker(t.Breaker), UnknownBudget: Budget(t.UnknownBudget),
		Input: input, Output: output, Approval: ApprovalRule{approvalMode(t), t.Approval.ExpiresAfter}, GuardTime: guardTime(t),
	}
	if t.Query != nil {
		tool.Query = &QueryRule{Timeout: t.Query.Timeout, NotBefore: t.Query.NotBefore}
	}
	return tool, nil
}

// guardTime is how long all guards may take, one after the other. Static ones ask
// nobody.
func guardTime(t config.Tool) (sum time.Duration) {
	for _, g := range t.Guards {
		if g.Static == nil {
			sum += GuardLimit(t, g)
		}
	}
	return sum
}

// GuardLimit is how long one guard may take.
func GuardLimit(t config.Tool, g config.Guard) time.Duration {
	if g.Timeout > 0 {
		return g.Timeout
	}
	return t.Timeout
}

// check refuses what no tool can be, whoever declared it.
func check(t config.Tool) error {
	if err := CheckName("name", t.Name); err != nil {
		return err
	}
	switch effect := entry.Effect(t.Effect); effect {
	case entry.Idempotent, entry.Local, entry.Opaque:
	case entry.Queryable:
		if t.Query == nil {
			return &InputError{Path: "query", What: "is absent", Allowed: "a query, since the effect is queryable", Missing: true}
		}
	default:
		return &InputError{Path: "effect", What: "unknown effect class", Allowed: "idempotent, queryable, local, opaque"}
	}
	if mode := WireMode(t.WireKey); mode != WireScope && mode != WireRaw {
		return &InputError{Path: "wire_key", What: "unknown mode", Allowed: "scope, raw"}
	}
	switch approvalMode(t) {
	case ApprovalNone, ApprovalRequired, ApprovalAtEffect:
		return nil
	}
	return &InputError{Path: "approval", What: "unknown mode", Allowed: "none, required, at_effect"}
}

func retry(r config.Retry) Retry {
	return Retry{
		Backoff: backoff.Policy{
			Kind: backoff.Kind(r.Backoff), Initial: r.Initial, Factor: r.Factor, Max: r.Max,
			Delays: slices.Clone(r.Delays), Jitter: backoff.Jitter(r.Jitter),
		},
		MaxAttempts: r.MaxAttempts, MaxLapses: r.MaxLapses, MaxQueries: r.MaxQueries, MaxAge: r.MaxAge,
	}
}
