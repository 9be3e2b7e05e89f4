package api

import (
	"context"
	"time"

	"github.com/outboxd/outboxd/poller"
)

// Release is what the release of a restored database came to.
type Release struct {
	Released bool      `json:"released"`             // false: it was not held
	Restored time.Time `json:"restored_at,omitzero"` // when it was put back
	Resumed  int       `json:"resumed"`              // idempotent: sent again with their keys
	Asked    int       `json:"asked"`                // queryable: will be asked about
	Held     int       `json:"held"`                 // unknown, reason "restored": for a person
}

func (s *API) release(c *call) (reply, error) {
	if err := c.body(&struct{}{}); err != nil {
		return reply{}, err
	}
	var r poller.Released
	err := s.care(c, func(ctx context.Context) (err error) {
		r, err = s.d.Poller.Release(ctx)
		return err
	})
	if err != nil {
		return reply{}, err
	}
	return ok(Release{!r.Restored.IsZero(), r.Restored, r.Resumed, r.Asked, r.Held})
}

// Release ends the hold of a database that was put back from an older copy.
func (c *Client) Release(ctx context.Context) (r Release, err error) {
	return r, c.call(ctx, "POST", "/v1/db/release", nil, nil, &r)
}
