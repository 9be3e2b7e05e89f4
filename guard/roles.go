package guard

import (
	"context"
	"slices"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
)

// Configured are the roles that the configuration gives: those of every principal
// that may submit for the scope now. Where no principal may, there are none, so a
// principal that is taken out of the configuration takes its backlog's roles along.
type Configured []config.Principal

// Roles implements Roles.
func (list Configured) Roles(_ context.Context, s contract.Scope) (roles []string, err error) {
	for _, p := range list {
		if len(p.Roles) > 0 && slices.ContainsFunc(p.MaySubmit, func(m config.Scope) bool { return Covers(m, s) }) {
			roles = append(roles, p.Roles...)
		}
	}
	return roles, nil
}

// Anyone stands for any tenant, or any subject.
const Anyone = "*"

// Covers reports whether a configured scope names this tenant, subject and tool.
func Covers(m config.Scope, s contract.Scope) bool {
	return (m.Tenant == Anyone || m.Tenant == s.Tenant) && (m.Subject == Anyone || m.Subject == s.Subject) &&
		(len(m.Tools) == 0 || slices.Contains(m.Tools, s.Tool))
}
