package demo

import (
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// process is a child that does not outlive this process: its stdin closes, and
// the kernel kills it.
type process struct {
	cmd   *exec.Cmd
	life  io.Closer // our end of its stdin
	ended chan struct{}
}

// start starts cmd in a process group of its own, so that a Ctrl-C is ours to
// handle. The caller must end it with kill or stop.
func start(cmd *exec.Cmd) (*process, error) {
	life, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, life: life, ended: make(chan struct{})}
	started := make(chan error)
	go p.keep(started)
	return p, <-started
}

// keep holds on to the thread until the child has ended: Pdeathsig is sent when
// the thread that forked ends, not the process.
func (p *process) keep(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.ended)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // ProcessState tells the same
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// alive reports whether it has not ended yet.
func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// kill ends it with SIGKILL and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error: it has ended
	<-p.ended
	_ = p.life.Close() // closed by Wait already
}

// how says how it ended; it must have.
func (p *process) how() string { return p.cmd.ProcessState.String() }

// environment leaves out what would make a child use the real configuration or
// talk to the service manager in our name.
func environment(env []string) (kept []string) {
	for _, v := range env {
		ours := strings.HasPrefix(v, "OUTBOXD_") || strings.HasPrefix(v, "LISTEN_") ||
			strings.HasPrefix(v, "WATCHDOG_") || strings.HasPrefix(v, "NOTIFY_SOCKET=")
		if !ours {
			kept = append(kept, v)
		}
	}
	return kept
}
