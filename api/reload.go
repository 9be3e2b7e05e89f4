package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/config"
)

// reloadTime is how long a reload may take, the ones before it included.
const reloadTime = time.Minute

// Reloaded is the answer to a reload that went well.
type Reloaded struct {
	Restart []string `json:"restart"` // sections that take effect at the next start only
}

// reload has the daemon read its config again, and answers when that is over.
func (s *API) reload(c *call) (reply, error) {
	if err := c.body(&struct{}{}); err != nil {
		return reply{}, err
	}
	c.allow(reloadTime)
	ctx, cancel := context.WithTimeout(c.Context(), reloadTime)
	defer cancel()
	restart, err := s.d.Reload(ctx)
	if problems, wrong := errors.AsType[*config.Problems](err); wrong {
		return reply{}, configInvalid(problems)
	}
	if err != nil {
		return reply{}, fmt.Errorf("reload: %w", err)
	}
	if restart == nil {
		restart = []string{}
	}
	return ok(Reloaded{restart})
}

func configInvalid(problems *config.Problems) *Problem {
	p := problem("CONFIG_INVALID")
	for _, x := range problems.List {
		what := x.Found
		if x.Line > 0 {
			what = fmt.Sprintf("line %d, column %d: %s", x.Line, x.Column, what)
		}
		p.Errors = append(p.Errors, InputError{x.Path, what, x.Allowed})
	}
	return p
}

// Reload has the daemon read its config again, and waits until that is over. A
// *Problem with the code CONFIG_INVALID says what is wrong with it; the daemon
// goes on with the old one.
func (c *Client) Reload(ctx context.Context) (r Reloaded, err error) {
	return r, c.call(ctx, "POST", "/v1/reload", nil, nil, &r)
}
