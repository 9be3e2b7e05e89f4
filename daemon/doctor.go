package daemon

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/ledger"
)

// Level is how bad a finding of Doctor is.
type Level string

// The levels. A warning is for somebody to know; a failure keeps outboxd from its
// work or breaks a promise.
const (
	Fine Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Finding is what one check of Doctor found.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	What  string `json:"what"`
	Do    string `json:"do,omitzero"` // what to do about it; empty: nothing
}

// Doctor looks at the database, and at everything around it that the daemon needs,
// and changes nothing. It never opens a file outside SQLite.
func Doctor(ctx context.Context, cfg *config.Config, o Options) []Finding {
	x := &doctor{cfg: cfg, now: time.Now, path: cfg.Database.Path}
	if o.Now != nil {
		x.now = o.Now
	}
	x.directory()
	if x.file() {
		x.user()
		x.beside()
		x.users()
		x.inside(ctx)
	}
	x.fileSystem()
	x.leftovers()
	x.clock()
	x.socket()
	x.unit()
	return x.found
}

type doctor struct {
	cfg   *config.Config
	now   func() time.Time
	path  string // real, once file has looked
	gid   int    // of the application group; 0: none
	found []Finding
}

func (x *doctor) say(check string, level Level, what, do string) {
	x.found = append(x.found, Finding{check, level, what, do})
}

func (x *doctor) ok(check, format string, args ...any) {
	x.say(check, Fine, fmt.Sprintf(format, args...), "")
}

// owned is who may do what with a file.
type owned struct {
	uid, gid uint32
	mode     fs.FileMode // permissions, setgid and sticky
	kind     fs.FileMode
	size     int64
}

func lookAt(path string) (owned, error) {
	st, err := os.Stat(path)
	if err != nil {
		return owned{}, err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return owned{}, fs.ErrInvalid
	}
	return owned{sys.Uid, sys.Gid, st.Mode() & (fs.ModePerm | fs.ModeSetgid | fs.ModeSticky), st.Mode().Type(), st.Size()}, nil
}

func (o owned) String() string {
	octal := uint32(o.mode.Perm())
	if o.mode&fs.ModeSetgid != 0 {
		octal |= 0o2000
	}
	return fmt.Sprintf("mode %04o, uid %d, gid %d", octal, o.uid, o.gid)
}

// directory must let its owner make files, and nobody else put one in their place.
func (x *doctor) directory() {
	const check = "directory"
	dir := filepath.Dir(x.path)
	d, err := lookAt(dir)
	if err != nil || !d.kind.IsDir() {
		x.say(check, Fail, dir+" is no directory that this user can look at", "create it for the user that the daemon runs as, mode 0700")
		return
	}
	gid, err := Group(x.cfg)
	if err != nil {
		x.say("application group", Fail, "this host has no group "+x.cfg.Database.ApplicationGroup, "correct database.application_group, or create the group")
	}
	x.gid = gid
	switch {
	case d.mode&0o002 != 0:
		x.say(check, Fail, "everybody may write in "+dir+" ("+d.String()+"), and so replace the database", "chmod o-w "+dir)
	case gid != 0 && (int(d.gid) != gid || d.mode&fs.ModeSetgid == 0 || d.mode&0o070 != 0o070):
		x.say(check, Fail, fmt.Sprintf("%s (%s) does not give what is made in it to the application group, gid %d", dir, d, gid),
			fmt.Sprintf("chgrp %d %s && chmod 2770 %s", gid, dir, dir))
	case gid == 0 && d.mode&0o020 != 0:
		x.say(check, Warn, "a group may write in "+dir+" ("+d.String()+"), and so replace the database", "chmod g-w "+dir+", or name the group in database.application_group")
	default:
		x.ok(check, "%s: %s", dir, d)
	}
}

// file reports whether there is a database to look at.
func (x *doctor) file() bool {
	const check = "file"
	f, err := lookAt(x.path)
	switch {
	case gone(err):
		x.say(check, Warn, x.path+" is not there", "the first start of the daemon makes it, or `outboxd db init`")
		return false
	case err != nil:
		x.say(check, Fail, x.path+" cannot be looked at by this user", "run as root, or as the user that the daemon runs as")
		return false
	case !f.kind.IsRegular():
		x.say(check, Fail, x.path+" is no regular file", "correct database.path")
		return false
	}
	if real, err := filepath.EvalSymlinks(x.path); err == nil {
		x.path = real
	}
	x.permissions(check, x.path, f)
	return true
}

// permissions checks a file that holds payloads, or lets somebody hold up those who
// work on them.
func (x *doctor) permissions(check, path string, f owned) {
	want := fs.FileMode(0o600)
	if x.gid != 0 {
		want = 0o660
	}
	switch {
	case f.mode.Perm()&^want != 0:
		x.say(check, Fail, fmt.Sprintf("%s is open to others (%s)", path, f), fmt.Sprintf("chmod %04o %s", want, path))
	case f.mode.Perm()&want != want:
		x.say(check, Fail, fmt.Sprintf("%s is not open to all who need it (%s)", path, f), fmt.Sprintf("chmod %04o %s", want, path))
	case x.gid != 0 && int(f.gid) != x.gid:
		x.say(check, Fail, fmt.Sprintf("%s does not belong to the application group, gid %d (%s)", path, x.gid, f), fmt.Sprintf("chgrp %d %s", x.gid, path))
	default:
		x.ok(check, "%s: %s, %s", path, f, size(uint64(max(0, f.size))))
	}
}

func (x *doctor) user() {
	if err := ledger.CheckOwner(x.path); err != nil {
		x.say("user", Warn, err.Error(), "sudo -u the owner outboxd db doctor looks into the file too")
		return
	}
	x.ok("user", "uid %d may work on the file", os.Geteuid())
}

// beside looks at what SQLite and the lock leave beside the file.
func (x *doctor) beside() {
	db, err := lookAt(x.path)
	if err != nil {
		return
	}
	for _, suffix := range []string{"-wal", "-shm", ".lock"} {
		f, err := lookAt(x.path + suffix)
		if gone(err) {
			continue
		}
		if err == nil && f.uid != db.uid && x.gid == 0 {
			x.say(suffix, Fail, fmt.Sprintf("%s%s belongs to uid %d, the database to uid %d: its owner cannot write it", x.path, suffix, f.uid, db.uid),
				fmt.Sprintf("stop the daemon, then chown %d:%d %s%s", db.uid, db.gid, x.path, suffix))
			continue
		}
		if err == nil {
			x.permissions(suffix, x.path+suffix, f)
		}
	}
}
