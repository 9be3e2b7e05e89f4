package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// WrongUserError says that a file belongs to another user: what this process would
// leave beside it (-wal, -shm, the lock file), its owner could not write.
type WrongUserError struct {
	Owner  string // name, or number
	Absent bool   // there is no file yet: it is the directory's owner
}

// Error says whom to run as.
func (e *WrongUserError) Error() string {
	if e.Absent {
		return "the directory of the database belongs to " + e.Owner + ", who could not write what root makes in it: run as " + e.Owner
	}
	return "the database belongs to " + e.Owner + ", who could not write the files that another user leaves beside it: run as " +
		e.Owner + ", or use the daemon's socket"
}

// CheckOwner is a *WrongUserError unless the file belongs to the effective user of
// this process, or is shared with a group: mode 0660, in a directory that the group
// may write and whose setgid bit gives the group to every file made in it.
func CheckOwner(path string) error {
	me := uint32(os.Geteuid())
	var file, dir unix.Stat_t
	err := unix.Stat(path, &file)
	if errors.Is(err, fs.ErrNotExist) {
		if err := unix.Stat(filepath.Dir(path), &dir); err == nil && me == 0 && dir.Uid != 0 {
			return &WrongUserError{Owner: userName(dir.Uid), Absent: true}
		}
		return nil
	}
	if err != nil || file.Uid == me {
		return nil // what cannot be looked at is refused when it is opened
	}
	real, err := filepath.EvalSymlinks(path)
	if err == nil && unix.Stat(filepath.Dir(real), &dir) == nil && shared(&file, &dir) {
		return nil
	}
	return &WrongUserError{Owner: userName(file.Uid)}
}

func shared(file, dir *unix.Stat_t) bool {
	return file.Mode&0o060 == 0o060 && dir.Mode&unix.S_ISGID != 0 && dir.Mode&0o030 == 0o030 && dir.Gid == file.Gid
}

func userName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return "uid " + number
}

// share gives the file and what is beside it to a group: mode 0660. SQLite makes
// -wal and -shm with the mode of the file, and the directory gives the group. What
// belongs to another user is that user's to share.
func (f *file) share(gid int) error {
	for _, path := range []string{f.path, f.path + "-wal", f.path + "-shm"} {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		if errors.Is(err, fs.ErrNotExist) || err == nil && int(st.Uid) != os.Geteuid() {
			continue
		}
		if err == nil && int(st.Gid) != gid {
			err = os.Lchown(path, -1, gid)
		}
		if err == nil && st.Mode&0o777 != 0o660 {
			err = os.Chmod(path, 0o660)
		}
		if err != nil {
			return fmt.Errorf("share the database with its application group: %w", pathError(withoutPath(err)))
		}
	}
	return nil
}
