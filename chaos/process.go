package chaos

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a child that does not outlive this process.
type Process struct {
	cmd   *exec.Cmd
	life  io.Closer // our end of its stdin
	ended chan struct{}
}

// Start starts cmd in a process group of its own. Its stdin stays open until it
// is to end, and the kernel kills it when this process ends.
func Start(cmd *exec.Cmd) (*Process, error) {
	life, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("open stdin: %w", err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &Process{cmd: cmd, life: life, ended: make(chan struct{})}
	started := make(chan error)
	go p.keep(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start process: %w", err)
	}
	return p, nil
}

// keep holds on to its thread until the child has ended: the death signal is
// sent when the thread that forked ends, not the process.
func (p *Process) keep(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.ended)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // ProcessState tells the same
	}
}

// PID is its number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed once it has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Alive reports whether it has not ended yet.
func (p *Process) Alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Signal sends it a signal. It may have ended: that is no error.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Signalled is the signal that ended it; 0 when it has not ended, or by itself.
func (p *Process) Signalled() syscall.Signal {
	if p.Alive() {
		return 0
	}
	if s, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return s.Signal()
	}
	return 0
}

// Kill ends it and its group with SIGKILL and returns when it is gone.
func (p *Process) Kill() {
	if p.Alive() {
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL) // it may have ended in this moment
	}
	<-p.ended
	_ = p.life.Close() // closed by Wait already
}

// Wait returns its exit status, -1 after a signal, or an error when ctx ends
// first.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("process %d has not ended: %w", p.PID(), ctx.Err())
	}
}
