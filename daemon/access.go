package daemon

import (
	"os"
	"slices"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/poller"
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

// warnOfTools says which tools of principals are none: nobody can submit for them.
func warnOfTools(log *zap.Logger, principals []config.Principal, work *poller.Work) {
	for _, p := range principals {
		for _, s := range p.MaySubmit {
			for _, tool := range s.Tools {
				if _, known := work.Registry.Lookup(tool); !known {
					log.Warn("principal may submit for a tool that does not exist", zap.String("principal", p.Name), zap.String("tool", tool))
				}
			}
		}
	}
}
