package daemon

import (
	"os"
	"slices"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
)

// access is who may do what, as the configuration says. The uid that opened the
// file is an operator, unless it is a principal: it can write the file anyway.
func access(cfg *config.Config) *api.Access { return accessOf(cfg, os.Geteuid()) }

func accessOf(cfg *config.Config, own int) *api.Access {
	operators := cfg.Operators
	if !slices.ContainsFunc(cfg.Principals, func(p config.Principal) bool { return p.UID == own }) {
		operators.UIDs = append(slices.Clip(operators.UIDs), own)
	}
	return api.NewAccess(operators, cfg.Principals)
}
