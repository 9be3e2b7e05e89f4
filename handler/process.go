package handler

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/chaos/point"
)

// ending is what became of a process.
type ending struct {
	unsent string // why it could not be started; the rest is empty then
	note   string

	exit   int
	signal syscall.Signal // 0 = it exited
	cutOff string         // timeout or cancelled: we ended it
	over   bool           // nothing of it is left that we can see
	out    *output
	err    *output
}

func (e ending) code() string {
	switch {
	case e.cutOff != "":
		return e.cutOff
	case e.signal != 0:
		return "signal_" + strconv.Itoa(int(e.signal))
	}
	return "exit_" + strconv.Itoa(e.exit)
}

// process is a started program and our ends of its pipes.
type process struct {
	cmd   *exec.Cmd
	input *os.File
	fed   sync.WaitGroup
	out   *output
	err   *output
}

// run makes one attempt: start, feed, wait, end the whole group, reap.
//
// The kernel sends PDEATHSIG when the thread that made the child ends, not
// when the process ends, and it is this function's goroutine that makes it. So
// the goroutine keeps its thread until the child is reaped: no other goroutine
// can lock that thread and take it down by returning.
func (g *program) run(ctx context.Context, c Call) (end ending) {
	if ctx.Err() != nil {
		return ending{unsent: endedBy(ctx)}
	}
	input, err := envelope(c)
	if err != nil {
		return ending{unsent: "envelope"}
	}
	if !g.standing.ownThread() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		return g.runHere(ctx, c, input)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		if err := g.standing.assume(); err != nil {
			end = ending{unsent: "not_permitted", note: note(err)}
			return
		}
		end = g.runHere(ctx, c, input)
	}()
	<-done
	return end
}

// runHere is run on the present thread.
func (g *program) runHere(ctx context.Context, c Call, input []byte) ending {
	p, err := g.start(ctx, c)
	if err != nil {
		return ending{unsent: g.unsentCode(err), note: note(err)}
	}
	p.fed.Go(func() { p.feed(input) })
	cutOff := p.await(ctx)
	over := p.drain(c)
	end := p.reap(cutOff, over)
	if end.cutOff != "" || end.signal != 0 || end.exit != 0 {
		// Whether more may come of it decides what happens next.
		end.over = hunt(c) && end.over
	}
	return end
}

// start starts the program. A file that is just being written is tried again
// for a moment: nothing has run yet.
func (g *program) start(ctx context.Context, c Call) (*process, error) {
	const patience, pause = 10, 20 * time.Millisecond
	for try := 0; ; try++ {
		p, err := g.startOnce(c)
		if !errors.Is(err, syscall.ETXTBSY) || try == patience {
			return p, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

func (g *program) startOnce(c Call) (*process, error) {
	var theirs, ours [3]*os.File
	defer closeAll(theirs[:])
	for i := range theirs {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours[:])
			return nil, err
		}
		if i == 0 {
			r, w = w, r
		}
		ours[i], theirs[i] = r, w
	}
	cmd := exec.Command(g.argv[0], g.argv[1:]...)
	cmd.Dir, cmd.Env = g.dir, g.environment(c)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	// Setpgid: one group, ended as a whole. Pdeathsig: the program does not
	// outlive a daemon that is killed (its own children may).
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: g.standing.credential}
	sealDescriptors()
	if err := cmd.Start(); err != nil {
		closeAll(ours[:])
		return nil, err
	}
	return &process{cmd: cmd, input: ours[0], out: collect(ours[1]), err: collect(ours[2])}, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // a pipe: there is nothing to lose
		}
	}
}

// sealDescriptors marks every descriptor above 2 close-on-exec. Go does so
// with its own; those that this process was itself started with (by a shell,
// by a service manager) would reach the program.
func sealDescriptors() {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	entries, err := os.ReadDir("/proc/self/fd") // kernels before 5.11
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// feed writes the input. A program may read half of it or nothing: that is its
// right, and the error (a broken pipe, our deadline) says no more than that.
func (p *process) feed(input []byte) {
	_, _ = p.input.Write(input)
	_ = p.input.Close()
	point.Hit(point.SendSent)
}

// await waits for the program itself to end and ends it when the context does:
// SIGTERM to the group, after a grace SIGKILL. It returns what cut it off. The
// program stays a zombie, so that the number of its group stays taken and no
// signal can reach a stranger.
func (p *process) await(ctx context.Context) string {
	gone := make(chan struct{})
	verdict := make(chan string, 1)
	go func() { verdict <- p.limit(ctx, gone) }()
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	close(gone)
	return <-verdict
}

func (p *process) limit(ctx context.Context, gone <-chan struct{}) string {
	select {
	case <-gone:
		return ""
	case <-ctx.Done():
	}
	select {
	case <-gone: // by itself, at the same moment
		return ""
	default:
	}
	p.signal(syscall.SIGTERM)
	timer := time.NewTimer(termGrace)
	defer timer.Stop()
	select {
	case <-gone:
	case <-timer.C:
		p.signal(syscall.SIGKILL)
	}
	return endedBy(ctx)
}

// signal signals the whole group. It is called only before the reaping.
func (p *process) signal(s syscall.Signal) {
	_ = syscall.Kill(-p.cmd.Process.Pid, s) // ESRCH: nobody is left
}

// drain reads the rest of the output and ends what is left of the group: a
// child that stays behind may hold the pipe, or still be about to act. It
// reports whether both outputs ended, which they do not while somebody who
// left the group and cannot be found holds them.
func (p *process) drain(c Call) bool {
	timer := time.NewTimer(drainGrace)
	defer timer.Stop()
	held := false
	for _, o := range []*output{p.out, p.err} {
		select {
		case <-o.done:
			continue
		case <-timer.C:
			held = true
		}
		break
	}
	p.signal(syscall.SIGKILL)
	if held {
		hunt(c)
	}
	_ = p.input.SetWriteDeadline(time.Now())
	p.fed.Wait()
	last := time.Now().Add(drainGrace)
	out, err := p.out.finish(last), p.err.finish(last)
	return out && err
}

func (p *process) reap(cutOff string, over bool) ending {
	end := ending{cutOff: cutOff, over: over, out: p.out, err: p.err}
	// Its error repeats the status.
	_ = p.cmd.Wait()
	state := p.cmd.ProcessState
	end.exit = state.ExitCode() // -1 when there is no state
	if state != nil {
		if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			end.signal = status.Signal()
		}
	}
	return end
}

// unsentCode tells why a program could not be started.
func (g *program) unsentCode(err error) string {
	switch {
	case errors.Is(err, syscall.ETXTBSY):
		return "text_busy"
	case errors.Is(err, syscall.ENOEXEC):
		return "bad_format"
	case outOfDescriptors(err):
		return "descriptors"
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return "no_resources"
	case errors.Is(err, syscall.E2BIG):
		return "arguments_too_long"
	case g.standing.credential != nil && errors.Is(err, syscall.EPERM):
		return "not_permitted"
	case errors.Is(err, fs.ErrPermission):
		return "not_executable"
	case errors.Is(err, exec.ErrNotFound):
		return "not_found"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return g.missing()
	}
	return "not_started"
}

// missing tells apart what the kernel has one word for: the directory, the
// file, or the interpreter that the file names.
func (g *program) missing() string {
	if g.dir != "" {
		if info, err := os.Stat(g.dir); err != nil || !info.IsDir() {
			return "dir_missing"
		}
	}
	path := g.argv[0]
	if !filepath.IsAbs(path) {
		path = filepath.Join(g.dir, path)
	}
	if _, err := os.Stat(path); err != nil {
		return "not_found"
	}
	return "bad_interpreter"
}
