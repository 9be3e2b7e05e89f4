package contract

import (
	"slices"

	"github.com/outboxd/outboxd/config"
)

// WithProviders is the registry with the provider profiles that proposals may come by.
func (r *Registry) WithProviders(list []config.Provider) *Registry {
	with := *r
	with.providers = slices.Clone(list)
	return &with
}

// KnowsOrigin reports whether an origin names a registered profile. Where none is
// registered every origin is taken, and one that names nothing always is: then no
// provider proposed it.
func (r *Registry) KnowsOrigin(o Origin) bool {
	profile := config.Provider{Provider: o.Provider, APIFamily: o.APIFamily, AdapterRevision: o.AdapterRevision}
	return len(r.providers) == 0 || o == (Origin{}) || slices.Contains(r.providers, profile)
}
