package config

import (
	"fmt"
	"strings"
)

// reserved begins the names of built-in tools.
const reserved = "outbox."

// tool checks a tool of the file as it stands there, before it is completed.
func (r *report) tool(path string, t Tool) {
	if t.HTTP == nil && t.Exec == nil && t.SQL == nil {
		r.refuse(path, "a tool with none of http, exec and sql", "one of them", path+".http", path+".exec", path+".sql")
	}
	if q := t.Query; q != nil && q.HTTP == nil && q.Exec == nil {
		path := path + ".query"
		r.refuse(path, "a query with neither http nor exec", "one of them", path+".http", path+".exec")
	}
	r.declared(path, t)
}

// declared checks what holds for a tool in Go as well.
func (r *report) declared(path string, t Tool) {
	r.name(path+".name", t.Name)
	if strings.HasPrefix(t.Name, reserved) {
		r.refuse(path+".name", quote(t.Name), "a name that does not begin with "+reserved+", which is kept for built-in tools")
	}
	r.target(path, t.HTTP, t.Exec, t.Timeout > 0, false)
	r.local(path, t)
	r.terms(path, t)
	if t.Query != nil {
		r.target(path+".query", t.Query.HTTP, t.Query.Exec, t.Query.Timeout > 0, true)
	} else if t.Effect == "queryable" {
		r.refuse(path+".effect", "queryable without a query", "a query beside it, or another effect", path+".effect", path+".query")
	}
	if (t.Rate.Events > 0) != (t.Rate.Per > 0) || t.Rate.Events < 0 || t.Rate.Per < 0 {
		r.refuse(path+".rate", "half a rate", "both events and period, or neither")
	}
	for _, v := range []struct{ key, value string }{
		{"input", t.Revisions.Input}, {"output", t.Revisions.Output}, {"effect", t.Revisions.Effect},
		{"handler", t.Revisions.Handler}, {"producer", t.Revisions.Producer}, {"policy", t.Revisions.Policy},
	} {
		r.revision(path+".revisions."+v.key, v.value)
	}
}

func (r *report) revision(path, value string) {
	unprintable := strings.ContainsFunc(value, func(c rune) bool { return c < '!' || c > '~' })
	if unprintable || len(value) > 64 || value == "" && r.said(path) {
		r.refuse(path, quote(value), "1 to 64 printable ASCII characters without blanks; left out, it is derived")
	}
}

// target checks the two ways to reach a downstream and where the timeout is said.
func (r *report) target(path string, h *HTTP, e *Exec, timed, query bool) {
	if h != nil && e != nil {
		r.refuse(path+".exec", "exec beside http", "one of them")
	}
	if h != nil {
		r.timeoutOnce(path+".http", timed, h.Timeout > 0)
		r.http(path+".http", *h, query)
	}
	if e != nil {
		r.timeoutOnce(path+".exec", timed, e.Timeout > 0)
		r.exec(path+".exec", *e)
	}
}

func (r *report) timeoutOnce(path string, outside, inside bool) {
	if outside && inside {
		parent := path[:strings.LastIndex(path, ".")]
		r.refuse(path+".timeout", "a timeout here and at "+parent, "one of them")
	}
}

// unique checks the tools of the file against each other.
func (r *report) unique(tools []Tool) {
	first, users := map[string]int{}, usersOf(tools)
	for i, t := range tools {
		path := fmt.Sprintf("tools[%d]", i)
		if j, ok := first[t.Name]; ok && t.Name != "" {
			r.refuse(path+".name", quote(t.Name)+" a second time", fmt.Sprintf("a name that is not tools[%d]'s", j))
			continue
		}
		first[t.Name] = i
		r.unshared(path, t, users)
	}
}

// usersOf returns the names of the tools behind each endpoint.
func usersOf(tools []Tool) map[string][]string {
	users := map[string][]string{}
	for _, t := range tools {
		users[endpoint(t)] = append(users[endpoint(t)], t.Name)
	}
	return users
}

// unshared refuses the caller's keys as wire keys where another tool sends its
// own to the same endpoint: two operations could become one there.
func (r *report) unshared(path string, t Tool, users map[string][]string) {
	mine := endpoint(t)
	if t.WireKey != "raw" || mine == "" {
		return
	}
	for _, name := range users[mine] {
		if name != t.Name {
			r.refuse(path+".wire_key", "raw, with an endpoint that tool "+quote(name)+" has too",
				"scope, or an endpoint that no other tool has", path+".wire_key", path+".http.url")
			return
		}
	}
}
