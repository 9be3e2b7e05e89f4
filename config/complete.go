package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// How long an attempt may take where nothing is said: a local effect holds up
// every other write.
const (
	defaultTimeout      = 30 * time.Second
	defaultLocalTimeout = time.Second
	longestLocal        = 10 * time.Second
)

// Tool completes a tool that a program declares itself, from the retry and
// worker sections and the defaults, and checks it as one of the file. It needs
// neither HTTP nor Exec: its handler may be in Go. c must come from Load, Parse
// or Default. The error is a *Problems without positions.
func (c *Config) Tool(t Tool) (Tool, error) {
	r := newReport("")
	path := "tools[" + clip(t.Name) + "]"
	r.ranges(reflect.ValueOf(t), path)
	r.declared(path, t)
	t = r.complete(path, t, c)
	r.unshared(path, t, usersOf(c.Tools))
	if err := problemsOf(r.problems); err != nil {
		return Tool{}, err
	}
	return t, nil
}

// complete returns the tool with everything that it did not say, and checks
// what the whole comes to. It changes nothing that t points to.
func (r *report) complete(path string, t Tool, c *Config) Tool {
	own := t.Retry
	t.Retry = t.Retry.over(c.Retry)
	if !reflect.ValueOf(own).IsZero() {
		r.retry(path+".retry", own, t.Retry)
	}
	if t.Retry.Backoff != "list" {
		t.Retry.Delays = nil
	}
	t.WireKey = cmp.Or(t.WireKey, "scope")
	t.Concurrency = cmp.Or(t.Concurrency, c.Worker.PerTool)
	t = t.completeLocal()
	t.Effect = cmp.Or(t.Effect, "opaque")
	t.HTTP, t.Exec, t.Timeout = target(t.HTTP, t.Exec, t.Timeout, "POST")
	t.Timeout = cmp.Or(t.Timeout, defaultTimeout)
	t = t.completeTerms()
	r.exitCodes(path+".exec", t.Exec)
	if t.Query != nil {
		q := *t.Query
		q.HTTP, q.Exec, q.Timeout = target(q.HTTP, q.Exec, q.Timeout, "GET")
		q.Timeout = cmp.Or(q.Timeout, t.Timeout)
		q.NotBefore = cmp.Or(q.NotBefore, t.Timeout)
		r.exitCodes(path+".query.exec", q.Exec)
		t.Query = &q
	}
	return t
}

// completeLocal fills what follows from sql, and from a local effect in Go.
func (t Tool) completeLocal() Tool {
	if t.SQL == nil {
		if t.Effect == "local" {
			t.Timeout = cmp.Or(t.Timeout, defaultLocalTimeout)
		}
		return t
	}
	own := *t.SQL
	t.Effect = cmp.Or(t.Effect, "local")
	t.Timeout = cmp.Or(t.Timeout, own.Timeout, defaultLocalTimeout)
	own.Timeout = 0
	t.SQL = &own
	return t
}

// completeTerms fills guards, approval, breaker and budget.
func (t Tool) completeTerms() Tool {
	t.Approval.Mode = cmp.Or(t.Approval.Mode, "none")
	if t.Breaker.Failures > 0 {
		t.Breaker.Window = cmp.Or(t.Breaker.Window, time.Minute)
		t.Breaker.Cooldown = cmp.Or(t.Breaker.Cooldown, 30*time.Second)
	}
	if t.UnknownBudget.Count > 0 {
		t.UnknownBudget.Per = cmp.Or(t.UnknownBudget.Per, time.Hour)
	}
	t.Guards = slices.Clone(t.Guards)
	for i := range t.Guards {
		g := &t.Guards[i]
		g.HTTP, g.Exec, g.Timeout = target(g.HTTP, g.Exec, g.Timeout, "POST")
		g.Timeout = cmp.Or(g.Timeout, t.Timeout)
	}
	return t
}

// target resolves where a timeout was said, the method, and the exit code that
// says "try again" where no list was given.
func target(h *HTTP, e *Exec, timeout time.Duration, method string) (*HTTP, *Exec, time.Duration) {
	if h != nil {
		own := *h
		timeout = cmp.Or(timeout, own.Timeout)
		own.Timeout = 0
		own.Method = cmp.Or(own.Method, method)
		h = &own
	}
	if e != nil {
		own := *e
		timeout = cmp.Or(timeout, own.Timeout)
		own.Timeout = 0
		if own.TryAgain == nil {
			own.TryAgain = []int{75}
		}
		e = &own
	}
	return h, e, timeout
}

// over returns the policy with what it does not say taken from base.
func (p Retry) over(base Retry) Retry {
	p.Backoff = cmp.Or(p.Backoff, base.Backoff)
	p.Initial = cmp.Or(p.Initial, base.Initial)
	p.Factor = cmp.Or(p.Factor, base.Factor)
	p.Max = cmp.Or(p.Max, base.Max)
	p.Jitter = cmp.Or(p.Jitter, base.Jitter)
	p.MaxAttempts = cmp.Or(p.MaxAttempts, base.MaxAttempts)
	p.MaxAge = cmp.Or(p.MaxAge, base.MaxAge)
	p.MaxLapses = cmp.Or(p.MaxLapses, base.MaxLapses)
	p.MaxQueries = cmp.Or(p.MaxQueries, base.MaxQueries)
	if p.Delays == nil {
		p.Delays = slices.Clone(base.Delays)
	}
	return p
}

// retry checks a policy against itself: own is what stands at path, all what it
// comes to.
func (r *report) retry(path string, own, all Retry) {
	about := func(keys ...string) (paths []string) {
		for _, key := range keys {
			paths = append(paths, path+"."+key, "retry."+key)
		}
		return paths
	}
	if all.Backoff != "list" {
		if own.Delays != nil {
			r.refuse(path+".delays", "delays with backoff "+clip(all.Backoff), "delays with backoff: list only", about("backoff", "delays")...)
		}
		if all.Initial > all.Max {
			at := path + ".max"
			if own.Max == 0 || !r.said(at) && r.said(path+".initial") {
				at = path + ".initial"
			}
			r.refuse(at, "initial "+brief(all.Initial)+" with max "+brief(all.Max), "max at least as long as initial", about("backoff", "initial", "max")...)
		}
		return
	}
	if len(all.Delays) == 0 {
		r.refuse(path+".backoff", "backoff list without delays", "at least one duration in delays", about("backoff", "delays")...)
	}
	for i, d := range all.Delays {
		if d > all.Max {
			r.refuse(fmt.Sprintf("%s.delays[%d]", path, i), brief(d)+" with max "+brief(all.Max), "no delay longer than max", about("delays", "max")...)
		}
	}
}
