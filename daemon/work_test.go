package daemon

import (
	"errors"
	"testing"

	"github.com/outboxd/outboxd/config"
)

func TestAToolOfAProgramNeedsAHandler(t *testing.T) {
	cfg := config.Default()
	_, done, err := assemble(&cfg, []Tool{{Config: config.Tool{Name: "noop"}}})
	if !errors.Is(err, ErrNoHandler) || done != nil {
		t.Errorf("assembling a tool without a handler answered %v", err)
	}
}
