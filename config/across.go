package config

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Horizon is how long after an operation's first attempt its policy may still begin
// another one: the longest delays, and attempts that each take their time limit.
func (t Tool) Horizon() time.Duration {
	sum, left := time.Duration(0), t.Retry.MaxAttempts-1
	for failures := 1; left > 0 && sum < t.Retry.MaxAge; failures++ {
		step, last := t.Retry.delay(failures)
		times := 1
		if last {
			times = min(left, int((t.Retry.MaxAge-sum)/max(step+t.Timeout, time.Millisecond))+1)
		}
		sum += time.Duration(times) * (step + t.Timeout)
		left -= times
	}
	return min(sum, t.Retry.MaxAge)
}

// delay is the longest wait after so many failures; last says that it never gets
// longer.
func (p Retry) delay(failures int) (d time.Duration, last bool) {
	switch p.Backoff {
	case "list":
		if len(p.Delays) == 0 {
			return time.Millisecond, true
		}
		i := min(failures, len(p.Delays)) - 1
		return min(p.Delays[i], p.Max), i == len(p.Delays)-1
	case "constant":
		return min(p.Initial, p.Max), true
	}
	grown := float64(p.Initial) * math.Pow(p.Factor, float64(failures-1))
	if grown >= float64(p.Max) {
		return p.Max, true
	}
	return time.Duration(grown), p.Factor == 1
}

// windows checks a tool's key window against the times in which the key is used.
func (r *report) windows(path string, t Tool) {
	at := path + ".key_window"
	if t.KeyWindow <= 0 {
		return
	}
	about := []string{at, path + ".timeout", path + ".retry", "retry"}
	if last := t.Horizon(); t.Effect == "idempotent" && t.KeyWindow < last {
		r.refuse(at, brief(t.KeyWindow)+" with retries over "+brief(last.Round(time.Millisecond)),
			"at least as long as the key is sent again; or fewer or shorter retries", about...)
	}
	if q := t.Query; q != nil && t.KeyWindow <= t.Timeout+q.NotBefore {
		r.refuse(at, brief(t.KeyWindow)+" with an answer that counts after "+brief(t.Timeout+q.NotBefore),
			"longer than the tool's timeout and query.not_before together", append(about, path+".query")...)
	}
}

// across checks sections against each other.
func (r *report) across(c *Config) {
	r.kept(c)
	r.hook(c)
	if c.Database.Path != "" && c.Database.Path == c.Listen.Socket {
		r.refuse("listen.socket", "the path of the database", "a path of its own", "listen.socket", "database.path")
	}
	roles := map[string]bool{}
	for _, p := range c.Principals {
		for _, role := range p.Roles {
			roles[role] = true
		}
	}
	for i, t := range c.Tools {
		r.windows(fmt.Sprintf("tools[%d]", i), t)
		for j, g := range t.Guards {
			if g.Static != nil {
				r.known(fmt.Sprintf("tools[%d].guards[%d].static.roles", i, j), g.Static.Roles, roles)
			}
		}
	}
}

func (r *report) known(path string, asked []string, roles map[string]bool) {
	for k, role := range asked {
		if !roles[role] {
			r.refuse(fmt.Sprintf("%s[%d]", path, k), quote(role)+", which no principal has", "a role of a principal", path, "principals")
		}
	}
}

// kept refuses what is kept for a shorter time than it may be asked for again.
func (r *report) kept(c *Config) {
	if !offered("retention") {
		return
	}
	last, whose := time.Duration(0), ""
	for _, t := range c.Tools {
		if h := t.Horizon(); h > last {
			last, whose = h, t.Name
		}
	}
	for _, k := range []struct {
		key string
		is  time.Duration
	}{{"delivered", c.Retention.Delivered}, {"discarded", c.Retention.Discarded}, {"tombstone", c.Retention.Tombstone}} {
		if k.is < last {
			r.refuse("retention."+k.key, brief(k.is)+" with retries of tool "+quote(whose)+" over "+brief(last.Round(time.Millisecond)),
				"at least as long as any tool is tried again", "retention."+k.key, "retry", "tools")
		}
	}
}

func (r *report) hook(c *Config) {
	if c.Hook == "" && !r.said("hook") {
		return
	}
	i := slices.IndexFunc(c.Tools, func(t Tool) bool { return t.Name == c.Hook })
	switch {
	case i < 0:
		r.refuse("hook", quote(c.Hook)+", which is no tool", "the name of a tool of this file", "hook", "tools")
	case c.Tools[i].Approval.Mode != "none":
		r.refuse("hook", quote(c.Hook)+", which waits for an approval", "a tool without an approval", "hook", "tools")
	}
}

func (r *report) group(path, name string) {
	if name != "" || r.said(path) {
		r.name(path, name)
	}
}

func (r *report) providers(all []Provider) {
	for i, p := range all {
		path := fmt.Sprintf("providers[%d]", i)
		r.name(path+".provider", p.Provider)
		r.name(path+".api_family", p.APIFamily)
		r.name(path+".adapter_revision", p.AdapterRevision)
		if j := slices.Index(all[:i], p); j >= 0 {
			r.refuse(path, "the same profile a second time", fmt.Sprintf("each once; providers[%d] is it", j))
		}
	}
}
