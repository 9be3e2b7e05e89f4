// Package booted shows how the shipped unit behaves under a systemd that is really
// booted: TestBooted starts a container and runs this test binary in it again, as
// root, where the stories are told with systemctl and journalctl. What it needs of
// the machine stands in tools/boot-systemd; .ci/run installs it.
package booted

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// asGuest is set where this binary runs in the container.
const asGuest = "OUTBOXD_BOOTED_GUEST"

// limit of all stories together. They take about a minute.
const limit = 5 * time.Minute

func TestBooted(t *testing.T) {
	if os.Getenv(asGuest) != "" {
		tell(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: the unit under a booted systemd: needs root")
	}
	if _, err := exec.LookPath("systemd-nspawn"); err != nil {
		t.Skip("NOT TESTED: the unit under a booted systemd: systemd-nspawn is not installed (Debian: systemd-container)")
	}
	self, err := os.Executable()
	must(t, err)
	daemon := filepath.Join(t.TempDir(), "outboxd")
	build := exec.Command("go", "build", "-o", daemon, "../../cmd/outboxd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the daemon: %v\n%s", err, text)
	}
	args := []string{"-t", "280"}
	for _, pair := range [][2]string{
		{daemon, "/usr/bin/outboxd"}, {self, "/opt/booted.test"},
		{"../../systemd/outboxd.service", "/usr/lib/systemd/system/outboxd.service"},
		{"../../systemd/outboxd.sysusers.conf", "/usr/lib/sysusers.d/outboxd.conf"},
		{"../../systemd/outboxd.tmpfiles.conf", "/usr/lib/tmpfiles.d/outboxd.conf"},
	} {
		args = append(args, "-c", pair[0]+":"+pair[1])
	}
	args = append(args, "-e", "outboxd.service", "--", "env", asGuest+"=1", "/opt/booted.test", "-test.run=^TestBooted$", "-test.v", "-test.failfast")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	runtime.LockOSThread() // the container ends with the thread that started it
	defer runtime.UnlockOSThread()
	out, err := exec.CommandContext(ctx, "../../tools/boot-systemd", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
