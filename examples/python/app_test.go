// Package python tests app.py, an application in another language, against a
// daemon with the configuration that stands beside it.
package python

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
)

func TestOrderAndShipmentAreOneTransaction(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	client := serve(t)
	if out, err := app("place", "17", "4200"); err != nil {
		t.Fatalf("place order 17: %v, %s", err, out)
	}
	if out, err := app("place", "18", "-1"); err == nil || !strings.Contains(out, "order 18 is not placed: CHECK constraint") {
		t.Errorf("place order 18: %v, %s, want a refusal", err, out)
	}
	if out, err := app("place", "17", "9900"); err == nil || !strings.Contains(out, "order 17 is not placed: UNIQUE constraint") {
		t.Errorf("place order 17 again: %v, %s, want a refusal", err, out)
	}
	if out := shipped(t, "17"); out != "order 17: delivered, {\"parcel\":\"P-17\"}\n" {
		t.Errorf("order 17 ended as %q", out)
	}
	if out, err := app("show", "18"); err != nil || out != "order 18: no shipment, or not yet\n" {
		t.Errorf("order 18: %v, %q", err, out)
	}
	page, err := client.List(t.Context(), api.Filter{})
	if err != nil || len(page.Operations) != 1 {
		t.Errorf("%d operations (%v), want the one of order 17", len(page.Operations), err)
	}
	refused, err := client.Refused(t.Context(), 0, 0)
	if err != nil || len(refused.Refused) != 0 {
		t.Errorf("%d refused rows (%v), want none: what is rolled back was never there", len(refused.Refused), err)
	}
	if r, err := client.Audit(t.Context()); err != nil || !r.Clean() {
		t.Errorf("audit: %v, %v", r, err)
	}
}

// serve copies the example to a directory, goes there, and runs a daemon until
// the test ends.
func serve(t *testing.T) *api.Client {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"app.py", "outboxd.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	cfg, err := config.Load("outboxd.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Operators.UIDs = []int{os.Getuid()}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- daemon.Run(ctx, cfg, daemon.Options{Started: func() { close(ready) }}, zap.NewNop())
	}()
	select {
	case err := <-ended:
		stop()
		t.Fatal(err)
	case <-ready:
	}
	transport := api.Socket(cfg.Listen.Socket)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("daemon ended: %v", err)
		}
	})
	return api.NewClient(transport)
}

func app(args ...string) (string, error) {
	out, err := exec.Command("python3", append([]string{"app.py", "shop.db"}, args...)...).CombinedOutput()
	return string(out), err
}

// shipped waits for the end of an order's shipment.
func shipped(t *testing.T, order string) string {
	t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	tooLate := time.After(20 * time.Second)
	for {
		out, err := app("show", order)
		if err != nil {
			t.Fatalf("show order %s: %v, %s", order, err, out)
		}
		if strings.Contains(out, "delivered") {
			return out
		}
		select {
		case <-again.C:
		case <-tooLate:
			t.Fatalf("not delivered: %s", out)
		}
	}
}
