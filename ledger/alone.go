package ledger

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// initialPIDs is what /proc/self/ns/pid names where every process of the host can
// be seen (PROC_PID_INIT_INO of the kernel).
const initialPIDs = "pid:[4026531836]"

// neighbours tells whether another process has the file open. In WAL mode each one
// holds a POSIX lock on the index of the log for as long as it has it open, and
// /proc/locks lists them.
type neighbours struct {
	file   *file
	blind  bool // not every process of the host is visible
	looked time.Time
	alone  bool
}

func newNeighbours(f *file) neighbours {
	ns, err := os.Readlink("/proc/self/ns/pid")
	return neighbours{file: f, blind: err != nil || ns != initialPIDs}
}

// none is true only where it is certain that nobody else had the file open less
// than lookTime ago.
func (n *neighbours) none() bool {
	if n.blind {
		return false
	}
	if time.Since(n.looked) >= lookTime {
		n.alone, n.looked = n.look(), time.Now()
	}
	return n.alone
}

func (n *neighbours) look() bool {
	index, err := stat(n.file.path + "-shm")
	if err != nil {
		return false
	}
	locks, err := os.ReadFile("/proc/locks")
	return err == nil && soleHolder(locks, os.Getpid(), index.ino)
}

// soleHolder: the process holds locks on the inode, which shows that they are
// listed under that number, and nobody else does. Format: proc_locks(5).
func soleHolder(locks []byte, pid int, inode uint64) bool {
	self, file, seen := strconv.Itoa(pid), strconv.FormatUint(inode, 10), false
	for line := range bytes.Lines(locks) {
		f := bytes.Fields(line)
		if len(f) > 1 && string(f[1]) == "->" { // one who waits for it
			f = f[1:]
		}
		if len(f) < 6 {
			continue
		}
		if id := f[5]; string(id[bytes.LastIndexByte(id, ':')+1:]) != file {
			continue
		}
		if string(f[4]) != self {
			return false
		}
		seen = true
	}
	return seen
}
