package handler

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// huntLimit bounds the search for what left a program's group.
const huntLimit = time.Second

// mark are the variables that stand in the environment of every process of one
// call and of nobody else: a claim's token is given once.
func mark(c Call) [][]byte {
	return [][]byte{
		[]byte("OUTBOX_OPERATION=" + c.StatusRef),
		[]byte("OUTBOX_FENCING_TOKEN=" + strconv.FormatInt(c.Token, 10)),
		[]byte("OUTBOX_PURPOSE=" + string(c.Purpose)),
	}
}

// hunt ends the processes of a call that left its group (setsid) and reports
// whether none is left. They are known by their environment, whoever has become
// their parent. What it cannot find: a process whose environment was cleared or
// may not be read, and one in another namespace.
func hunt(c Call) bool {
	wanted := mark(c)
	for last := time.Now().Add(huntLimit); ; {
		left := 0
		for _, pid := range processes() {
			if pid != os.Getpid() && end(pid, wanted) {
				left++
			}
		}
		switch {
		case left == 0:
			return true
		case time.Now().After(last):
			return false
		}
	}
}

// processes are the numbers of all processes that can be seen.
func processes() (pids []int) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = proc.Close() }() // only read
	names, _ := proc.Readdirnames(-1)   // what was read before an error is true
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// end kills the process if it has the marks, and reports whether it had. The
// descriptor makes sure that it is not the next process with the same number.
func end(pid int, wanted [][]byte) bool {
	if !marked(pid, wanted) {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return false
	}
	if err != nil { // kernels before 5.3
		_ = unix.Kill(pid, unix.SIGKILL) // ESRCH: it ended
		return true
	}
	defer func() { _ = unix.Close(fd) }() // only signalled through
	if !marked(pid, wanted) {
		return false
	}
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // ESRCH: it ended
	return true
}

// marked reads the environment with which the process was started. That of a
// process that is over is empty.
func marked(pid int, wanted [][]byte) bool {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false // it ended, or it is not ours to read
	}
	found := 0
	for v := range bytes.SplitSeq(environ, []byte{0}) {
		for _, w := range wanted {
			if bytes.Equal(v, w) {
				found++
				break
			}
		}
	}
	return found == len(wanted)
}
