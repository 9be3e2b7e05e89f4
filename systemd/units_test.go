package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func unit(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("outboxd.service")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTheUnitKeepsWhatTheDaemonReliesOn(t *testing.T) {
	lines := strings.Split(string(unit(t)), "\n")
	for _, want := range []string{
		"Type=notify", "NotifyAccess=main", "KillMode=mixed", "Restart=always",
		"RestartPreventExitStatus=78", "SuccessExitStatus=3", "StartLimitIntervalSec=0",
		"User=outboxd", "StateDirectoryMode=0700",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("outboxd.service does not say %s", want)
		}
	}
}

func TestTheUnitWaitsLongerThanTheDrain(t *testing.T) {
	const drain = 30 * time.Second // the default of worker.drain_timeout
	for line := range strings.Lines(string(unit(t))) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "TimeoutStopSec="); ok {
			if limit, err := time.ParseDuration(value); err != nil || limit < drain+30*time.Second {
				t.Errorf("TimeoutStopSec=%s (%v), want at least 30s more than %s", value, err, drain)
			}
			return
		}
	}
	t.Error("outboxd.service has no TimeoutStopSec")
}

func TestSystemdAcceptsTheUnits(t *testing.T) {
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("NOT TESTED: whether systemd accepts the units: systemd-analyze is not installed")
	}
	// The binary is not installed where tests run: any program stands for it.
	text := strings.ReplaceAll(string(unit(t)), "/usr/bin/outboxd", "/bin/true")
	path := filepath.Join(t.TempDir(), "outboxd.service")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(verify, "verify", "--man=no", path).CombinedOutput()
	if err != nil || strings.Contains(string(out), path) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

func TestTheUnitIsHardened(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("NOT TESTED: how exposed the unit is: systemd-analyze is not installed")
	}
	out, err := exec.Command(analyze, "security", "--offline=true", "--no-pager", "--threshold=15", "outboxd.service").CombinedOutput()
	if err != nil {
		t.Errorf("the unit is exposed by more than 1.5: %v\n%s", err, out)
	}
}

// The socket sees who connects by uid: with users of its own the service would see
// nobody. And it must be able to reach downstreams.
func TestTheUnitDoesNotHideTheUsersOfTheSocket(t *testing.T) {
	for line := range strings.Lines(string(unit(t))) {
		for _, never := range []string{"PrivateUsers=", "PrivateNetwork=", "IPAddressDeny=", "DynamicUser="} {
			if strings.HasPrefix(line, never) {
				t.Errorf("outboxd.service says %s", line)
			}
		}
	}
}

// A reload with a broken config must reach the daemon all the same: the unit names
// the socket, and that is the one of the shipped configuration.
func TestTheUnitReloadsAtTheSocketOfTheShippedConfiguration(t *testing.T) {
	shipped, err := os.ReadFile("../examples/outboxd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const socket = "/run/outboxd/outboxd.sock"
	if !strings.Contains(string(unit(t)), "\nExecReload=/usr/bin/outboxd config reload --socket "+socket+"\n") {
		t.Errorf("ExecReload does not wait at %s", socket)
	}
	if !strings.Contains(string(shipped), "\n  socket: "+socket+"\n") {
		t.Errorf("the shipped configuration does not listen at %s", socket)
	}
}
