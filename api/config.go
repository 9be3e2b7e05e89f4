package api

import "context"

// Config is what a daemon has in force.
type Config struct {
	Settings []Setting `json:"settings"`
	Problem  string    `json:"problem,omitzero"` // why the last reload failed: the file says something else
}

// Setting is one value that is in force. None holds a secret.
type Setting struct {
	Path  string `json:"path"`
	Value string `json:"value"`
}

// config tells what is in force, which may be older than the file.
func (s *API) config(*call) (reply, error) {
	cfg, problem := s.d.Config()
	answer := Config{Settings: []Setting{}, Problem: problem}
	for _, one := range cfg.Settings() {
		answer.Settings = append(answer.Settings, Setting{one.Path, one.Value})
	}
	return ok(answer)
}

// Config is what the daemon has in force.
func (c *Client) Config(ctx context.Context) (in Config, err error) {
	return in, c.call(ctx, "GET", "/v1/config", nil, nil, &in)
}
