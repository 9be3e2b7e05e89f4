package systemd_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/systemd"
)

// manager listens as the service manager does and returns a function that
// reads the next datagram.
func manager(t *testing.T) func() string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		t.Helper()
		buf := make([]byte, 4096)
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("read a datagram: %v", err)
		}
		return string(buf[:n])
	}
}

func TestEachMessageIsOneDatagram(t *testing.T) {
	next := manager(t)
	for _, c := range []struct {
		name string
		send func() error
		want string
	}{
		{"Ready", func() error { return systemd.Ready("12 due") }, "READY=1\nSTATUS=12 due"},
		{"Stopping", func() error { return systemd.Stopping("draining 3") }, "STOPPING=1\nSTATUS=draining 3"},
		{"Status", func() error { return systemd.Status("idle") }, "STATUS=idle"},
		{"Alive", systemd.Alive, "WATCHDOG=1"},
		{"Extend", func() error { return systemd.Extend(time.Minute) }, "EXTEND_TIMEOUT_USEC=60000000"},
	} {
		if err := c.send(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := next(); got != c.want {
			t.Errorf("%s sent %q, want %q", c.name, got, c.want)
		}
	}
}

func TestReloadingCarriesTheMonotonicTimeInTheSameDatagram(t *testing.T) {
	next := manager(t)
	before := monotonic(t)
	if err := systemd.Reloading(); err != nil {
		t.Fatal(err)
	}
	after := monotonic(t)
	first, rest, ok := strings.Cut(next(), "\nMONOTONIC_USEC=")
	if !ok || first != "RELOADING=1" {
		t.Fatalf("sent %q and %q, want RELOADING=1 and MONOTONIC_USEC", first, rest)
	}
	usec, err := strconv.ParseInt(rest, 10, 64)
	if err != nil || usec < before || usec > after {
		t.Errorf("MONOTONIC_USEC=%s (%v), want between %d and %d", rest, err, before, after)
	}
}

func monotonic(t *testing.T) int64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano() / 1000
}

func TestStatusTextCannotBecomeAnotherVariable(t *testing.T) {
	next := manager(t)
	for _, c := range []struct{ text, want string }{
		{"bad\nWATCHDOG=trigger", "STATUS=bad WATCHDOG=trigger"},
		{"nul\x00 and \x1b[31m", "STATUS=nul  and  [31m"},
		{"broken \xff", "STATUS=broken "},
		{strings.Repeat("ä", 400), "STATUS=" + strings.Repeat("ä", 256)},
		{"x" + strings.Repeat("ä", 400), "STATUS=x" + strings.Repeat("ä", 255)},
	} {
		if err := systemd.Status(c.text); err != nil {
			t.Fatal(err)
		}
		if got := next(); got != c.want {
			t.Errorf("Status(%q) sent %q, want %q", c.text, got, c.want)
		}
	}
}

func TestWithoutAServiceManagerNothingHappens(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "")
	if err := systemd.Ready(""); err != nil {
		t.Errorf("Ready: %v", err)
	}
	if err := systemd.Reloading(); err != nil {
		t.Errorf("Reloading: %v", err)
	}
	if d, err := systemd.WatchdogInterval(); d != 0 || err != nil {
		t.Errorf("WatchdogInterval() = %v, %v, want 0, nil", d, err)
	}
}

func TestAServiceManagerThatIsGoneIsAnError(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	if err := systemd.Ready(""); err == nil {
		t.Error("Ready to a socket that does not exist succeeded")
	}
}

func TestWatchdogIntervalIsHalfTheLimit(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		usec, pid string
		want      time.Duration
		fails     bool
	}{
		{"60000000", own, 30 * time.Second, false},
		{"60000000", "", 30 * time.Second, false},
		{"60000000", "1", 0, false}, // meant for another process
		{"soon", own, 0, true},
		{"-1", own, 0, true},
	} {
		t.Setenv("WATCHDOG_USEC", c.usec)
		t.Setenv("WATCHDOG_PID", c.pid)
		got, err := systemd.WatchdogInterval()
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("WATCHDOG_USEC=%s WATCHDOG_PID=%s: %v, %v, want %v, an error: %v", c.usec, c.pid, got, err, c.want, c.fails)
		}
	}
}

// A service manager that does not read holds nothing up for long.
func TestAServiceManagerThatDoesNotReadIsNotWaitedFor(t *testing.T) {
	manager(t)
	began := time.Now()
	for n := 0; ; n++ {
		err := systemd.Status("idle")
		if err != nil && n == 0 {
			t.Fatalf("the first message: %v", err)
		}
		if err != nil {
			break
		}
		if n > 10_000 {
			t.Fatal("the socket takes everything")
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s to give up", took)
	}
}
