package ledger

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// User is a process that has a database open in WAL mode.
type User struct {
	PID     int
	Command string // its name; empty: not known
	Reading bool   // it has a read transaction at this moment: the log cannot be reused past it
}

// readMarks are the bytes of the index of the log that a reader locks one of.
const (
	firstReadMark = 123
	lastReadMark  = 127
)

// Users lists who has the database open, as far as the kernel shows it (locks of
// processes in other containers are not seen). It opens nothing.
func Users(path string) ([]User, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, pathError(err)
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return nil, withoutPath(err)
	}
	found := map[int]User{}
	for _, suffix := range []string{"", "-shm"} {
		var st unix.Stat_t
		if unix.Stat(real+suffix, &st) != nil {
			continue
		}
		for _, l := range locksOn(locks, st.Ino) {
			u := found[l.pid]
			u.PID, u.Reading = l.pid, u.Reading || suffix != "" && l.from <= lastReadMark && l.to >= firstReadMark
			found[l.pid] = u
		}
	}
	var list []User
	for pid, u := range found {
		if name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm"); err == nil {
			u.Command = string(bytes.TrimSpace(name))
		}
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b User) int { return cmp.Compare(a.PID, b.PID) })
	return list, nil
}

type heldLock struct {
	pid      int
	from, to int64
}

// locksOn reads the POSIX locks on an inode. Format: proc_locks(5).
func locksOn(locks []byte, inode uint64) (list []heldLock) {
	file := strconv.FormatUint(inode, 10)
	for line := range bytes.Lines(locks) {
		f := bytes.Fields(line)
		if len(f) < 8 || string(f[1]) != "POSIX" || string(f[5][bytes.LastIndexByte(f[5], ':')+1:]) != file {
			continue
		}
		pid, err := strconv.Atoi(string(f[4]))
		from, err2 := strconv.ParseInt(string(f[6]), 10, 64)
		if err != nil || err2 != nil || pid <= 0 {
			continue
		}
		to, err := strconv.ParseInt(string(f[7]), 10, 64)
		if err != nil {
			to = 1<<63 - 1 // EOF
		}
		list = append(list, heldLock{pid, from, to})
	}
	return list
}
