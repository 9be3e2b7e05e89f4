package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/ledger"
)

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) }

func size(bytes uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	n := float64(bytes)
	for n >= 1024 && len(units) > 1 {
		n, units = n/1024, units[1:]
	}
	return fmt.Sprintf("%.4g %s", n, units[0])
}

// Space below which a disk is nearly, and as good as, full, in bytes.
const (
	littleSpace = 256 << 20
	noSpace     = 16 << 20
)

func (x *doctor) fileSystem() {
	dir := filepath.Dir(x.path)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return // directory has said so
	}
	name, network := ledger.FileSystem(int64(st.Type))
	switch {
	case network && !x.cfg.Database.AllowNetworkFS:
		x.say("file system", Fail, name+": SQLite's locks and shared memory are not safe there", "move the database to a disk of this host")
	case network:
		x.say("file system", Warn, name+": SQLite's locks and shared memory are not safe there; database.allow_network_fs overrides that", "move the database to a disk of this host")
	case name == "tmpfs" || name == "ramfs":
		x.say("file system", Warn, name+": everything is lost when the host stops", "move the database to a disk, unless that is meant")
	default:
		x.ok("file system", "%s", name)
	}
	x.space(uint64(st.Bavail)*uint64(st.Bsize), st.Files, st.Ffree)
}

func (x *doctor) space(free, files, freeFiles uint64) {
	const check, more = "space", "free space, shorten retention, or move the database"
	switch {
	case free < noSpace || files > 0 && freeFiles < 16:
		x.say(check, Fail, fmt.Sprintf("%s and %d new files are left: nothing is accepted on a full disk", size(free), freeFiles), more)
	case free < littleSpace:
		x.say(check, Warn, size(free)+" is left", more)
	default:
		x.ok(check, "%s is left", size(free))
	}
}

// leftovers are what a backup or restore that was killed left, and files that a
// restore replaced.
func (x *doctor) leftovers() {
	dir := filepath.Dir(x.path)
	for pattern, do := range map[string]string{
		".outboxd-backup-*":                   "remove it once no backup runs",
		".outboxd-restore-*":                  "remove it once no restore runs",
		filepath.Base(x.path) + ".replaced-*": "remove it when it is no longer wanted: a restore put another file in its place",
		filepath.Base(x.path) + "-journal":    "stop everything that uses the file; this journal is of another mode than WAL",
	} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			continue // a path with [ in it
		}
		for _, name := range names {
			x.say("leftover", Warn, name, do)
		}
	}
}

// clock: what is due, and how long a key is remembered, goes by it.
func (x *doctor) clock() {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	switch {
	case err != nil:
		x.say("clock", Warn, "whether it is synchronised cannot be seen here", "")
	case state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0:
		x.say("clock", Warn, "it is not synchronised", "run a time service (systemd-timesyncd, chrony); in a container the host does")
	default:
		x.ok("clock", "synchronised, %s", x.now().UTC().Format(time.RFC3339))
	}
}

func (x *doctor) socket() {
	const check = "socket"
	path := x.cfg.Listen.Socket
	if path == "" {
		x.say(check, Warn, "no socket is named", "set listen.socket")
		return
	}
	f, err := lookAt(path)
	c, dial := net.DialTimeout("unix", path, time.Second)
	if dial == nil {
		_ = c.Close()
	}
	switch {
	case gone(err):
		x.say(check, Warn, path+" is not there: no daemon runs", "systemctl start outboxd")
	case err != nil || errors.Is(dial, fs.ErrPermission):
		x.say(check, Warn, "this user may not use "+path, "be a member of the socket's group, or root")
	case f.kind != fs.ModeSocket:
		x.say(check, Fail, path+" is no socket", "correct listen.socket, or remove the file")
	case errors.Is(dial, syscall.ECONNREFUSED):
		x.say(check, Warn, path+" is left from a daemon that was killed: nobody listens", "the next start takes its place")
	case dial != nil:
		x.say(check, Warn, "the daemon does not take connections at "+path, "look at its log: journalctl -u outboxd")
	default:
		x.ok(check, "a daemon listens at %s: %s", path, f)
	}
}

// unitDirs are where service managers look, the first that has a unit counts.
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

func (x *doctor) unit() {
	for _, dir := range unitDirs {
		text, err := os.ReadFile(filepath.Join(dir, "outboxd.service"))
		if err != nil {
			continue
		}
		if !strings.Contains(string(text), "Type=notify") {
			x.say("unit", Warn, dir+"/outboxd.service is not Type=notify: systemd does not know when it is ready", "use the unit that is shipped")
			return
		}
		x.ok("unit", "%s/outboxd.service", dir)
		return
	}
	x.say("unit", Warn, "systemd has no outboxd.service", "install the unit that is shipped, or have something else start it again")
}
