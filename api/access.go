package api

import (
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/guard"
)

// Access says who may do what: operators everything, principals what lies within
// their scopes, others nothing. It never changes; a reload makes another one.
type Access struct {
	operators  config.Operators
	principals map[int]grant // by uid
}

// grant is what one uid may submit, and therefore see.
type grant struct {
	scopes []config.Scope
	list   []config.Principal
	filter string // the scopes for statements, as filterOf has them
}

// NewAccess makes the rules of a configuration. Principals of one uid add up.
func NewAccess(operators config.Operators, principals []config.Principal) *Access {
	a := &Access{operators: operators, principals: map[int]grant{}}
	for _, p := range principals {
		g := a.principals[p.UID]
		g.scopes = append(slices.Clip(g.scopes), p.MaySubmit...)
		g.list = append(slices.Clip(g.list), p)
		g.filter = filterOf(g.scopes)
		a.principals[p.UID] = g
	}
	return a
}

const anyone = guard.Anyone

// filterOf is a row of tenant, subject and tool for each tool of each scope; an
// empty tool is any.
func filterOf(scopes []config.Scope) string {
	rows := [][3]string{}
	for _, s := range scopes {
		if len(s.Tools) == 0 {
			rows = append(rows, [3]string{s.Tenant, s.Subject, ""})
		}
		for _, tool := range s.Tools {
			rows = append(rows, [3]string{s.Tenant, s.Subject, tool})
		}
	}
	b, err := json.Marshal(rows)
	if err != nil {
		return "[]" // no UTF-8: the configuration lets no such name in
	}
	return string(b)
}

func (a *Access) operator(p peer) bool {
	return slices.Contains(a.operators.UIDs, p.UID) ||
		slices.ContainsFunc(p.GIDs, func(gid int) bool { return slices.Contains(a.operators.GIDs, gid) })
}

// covers reports whether the peer may submit for this tenant, subject and tool,
// and therefore see it.
func (a *Access) covers(p peer, tenant, subject, tool string) bool {
	return a.operator(p) || a.submits(p, tenant, subject, tool)
}

// submits is covers for what the peer may submit itself, operator or not.
func (a *Access) submits(p peer, tenant, subject, tool string) bool {
	return slices.ContainsFunc(a.principals[p.UID].scopes, func(s config.Scope) bool {
		return guard.Covers(s, contract.Scope{Tenant: tenant, Subject: subject, Tool: tool})
	})
}

// owns reports whether the peer may submit for this tenant and subject, and
// therefore has its sessions.
func (a *Access) owns(p peer, tenant, subject string) bool {
	return a.operator(p) || slices.ContainsFunc(a.principals[p.UID].scopes, func(s config.Scope) bool {
		return (s.Tenant == anyone || s.Tenant == tenant) && (s.Subject == anyone || s.Subject == subject)
	})
}

// filter is the peer's scopes for a statement; empty: everything.
func (a *Access) filter(p peer) string {
	if a.operator(p) {
		return ""
	}
	if g, ok := a.principals[p.UID]; ok {
		return g.filter
	}
	return "[]"
}

// only is the one tenant and subject that the peer's scopes name, if there is
// exactly one.
func (a *Access) only(p peer) (who Principal, ok bool) {
	for _, s := range a.principals[p.UID].scopes {
		next := Principal{s.Tenant, s.Subject}
		if s.Tenant == anyone || s.Subject == anyone || (ok && next != who) {
			return Principal{}, false
		}
		who, ok = next, true
	}
	return who, ok
}
