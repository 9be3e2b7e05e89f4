package daemon

import (
	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
)

// access is who may do what, as the configuration says.
func access(cfg *config.Config) *api.Access {
	return api.NewAccess(cfg.Operators, cfg.Principals)
}
