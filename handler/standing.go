package handler

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/config"
)

// standing is as whom and how a program runs. The zero value is: as the daemon.
type standing struct {
	credential *syscall.Credential // nil: the daemon's
	umask      *fs.FileMode        // nil: the daemon's
	nice       int
}

// newStanding looks the user up; its groups are those of that moment.
func newStanding(x config.Exec) (standing, error) {
	s := standing{umask: x.Umask, nice: x.Nice}
	if x.User == "" {
		return s, nil
	}
	u, err := user.Lookup(x.User)
	if err != nil {
		return s, fmt.Errorf("exec.user: %w", err)
	}
	uid, err := number(u.Uid)
	if err != nil {
		return s, fmt.Errorf("exec.user: %w", err)
	}
	if int(uid) == os.Geteuid() {
		return s, nil // nothing to change, and no right to ask for it
	}
	gid, err := number(u.Gid)
	if err != nil {
		return s, fmt.Errorf("exec.user: %w", err)
	}
	s.credential = &syscall.Credential{Uid: uid, Gid: gid}
	names, err := u.GroupIds()
	if err != nil {
		return s, fmt.Errorf("exec.user: read the groups: %w", err)
	}
	for _, name := range names {
		group, err := number(name)
		if err != nil {
			return s, fmt.Errorf("exec.user: %w", err)
		}
		s.credential.Groups = append(s.credential.Groups, group)
	}
	return s, nil
}

func number(id string) (uint32, error) {
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("the id %q is no number", id)
	}
	return uint32(n), nil
}

// ownThread says that the program must be started by a thread that nobody else
// uses, before or after.
func (s standing) ownThread() bool { return s.umask != nil || s.nice != 0 }

// assume gives the present thread the umask and the priority, which a process
// that it starts inherits. The thread can never go back to work for others.
func (s standing) assume() error {
	if s.umask != nil {
		// Else the umask is that of all threads.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("give the program a umask: %w", err)
		}
		unix.Umask(int(*s.umask))
	}
	if s.nice != 0 {
		if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), s.nice); err != nil {
			return fmt.Errorf("give the program its priority: %w", err)
		}
	}
	return nil
}
