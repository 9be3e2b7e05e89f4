// Package systemd speaks the service manager's notification protocol
// (sd_notify(3)) and holds the units that are shipped. It promises that a
// message is one datagram in the protocol's form, whatever text it is given;
// without a service manager every call does nothing. When to say what is the
// daemon's decision.
package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// maxStatus bounds a status line in bytes: systemctl shows one line of it.
const maxStatus = 512

// Ready says that the daemon has started, or that a reload is over, however it
// ended; status is the line that systemctl shows.
func Ready(status string) error {
	return send(daemon.SdNotifyReady, line(status))
}

// Reloading says that a reload begins. Ready must follow in every case, or the
// service manager waits for it and then ends the service. The time on the
// monotonic clock belongs into the same datagram: by it the service manager
// tells this reload from an earlier one (sd_notify(3), MONOTONIC_USEC).
func Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the monotonic clock: %w", err)
	}
	return send(daemon.SdNotifyReloading, "MONOTONIC_USEC="+strconv.FormatInt(now.Nano()/1000, 10))
}

// Stopping says that the daemon drains and will end.
func Stopping(status string) error {
	return send(daemon.SdNotifyStopping, line(status))
}

// Status replaces the line that systemctl shows and changes nothing else.
func Status(status string) error {
	return send(line(status))
}

// Extend asks for at least that much more time, from now on, for the start or the
// stop that is under way (sd_notify(3), EXTEND_TIMEOUT_USEC). A running service it
// does not concern.
func Extend(by time.Duration) error {
	return send("EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(by.Microseconds(), 10))
}

// Alive resets the watchdog. The caller sends it every WatchdogInterval, and
// only while its work moves: it is the proof of that.
func Alive() error {
	return send(daemon.SdNotifyWatchdog)
}

// WatchdogInterval returns how often Alive must be called: half of what the
// service manager tolerates (sd_watchdog_enabled(3)). 0 means that nobody
// watches this process.
func WatchdogInterval() (time.Duration, error) {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0, fmt.Errorf("read the watchdog's limit: %w", err)
	}
	return limit / 2, nil
}

// sendTime is how long a service manager that is behind with reading is waited for:
// what it is told is less urgent than the work.
const sendTime = time.Second

// send joins the variables into one datagram. The environment keeps
// NOTIFY_SOCKET for the next one; programs that we start never see it.
func send(variables ...string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if err := datagram(path, strings.Join(variables, "\n")); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

// datagram is what sd_notify(3) of the reference in Go does, but for the time limit.
func datagram(path, text string) error {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	err = c.SetWriteDeadline(time.Now().Add(sendTime))
	if err == nil {
		_, err = c.Write([]byte(text))
	}
	return errors.Join(err, c.Close())
}

// line makes any text one status line: a line break in it would begin a
// variable of the protocol.
func line(status string) string {
	if len(status) > maxStatus {
		status = status[:maxStatus]
	}
	return "STATUS=" + strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(status, ""))
}
