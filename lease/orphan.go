package lease

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// gone: the process that the lock file names holds nothing any more. Who has the
// lock then is a child that it was just starting and that has not let go of the
// descriptor yet, or a new holder that has not written its name.
func (m mark) gone() bool {
	if m.PID == 0 || errors.Is(unix.Kill(m.PID, 0), unix.ESRCH) {
		return true
	}
	state, begun := process(m.PID)
	return state == "Z" || state == "X" || (m.Begun != "" && begun != "" && begun != m.Begun)
}

// process returns the state of a process and when it began, in clock ticks since
// the boot (proc_pid_stat(5)): a number that was given to another process since
// comes with another time. Both are "" where that is not known.
func process(pid int) (state, begun string) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", ""
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // the name before it may hold anything
	if len(fields) < 20 {
		return "", ""
	}
	return string(fields[0]), string(fields[19])
}
