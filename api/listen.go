package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// ErrSocketInUse says that another process answers on the socket.
var ErrSocketInUse = errors.New("another process listens on this socket")

// ErrNotSocket says that the path names something else, which is left alone.
var ErrNotSocket = errors.New("the socket's path names a file that is no socket")

// ErrOpenDirectory says that the socket's directory is no place for it.
var ErrOpenDirectory = errors.New("everybody may write to the socket's directory and put another socket in its place: take that right away, or choose another directory")

// How many connections there may be, of all peers and of one uid. One too many
// is closed at once. Some are kept for root and for the daemon's own user, so that
// operators get in however many principals there are.
const (
	maxConns    = 2048
	keptConns   = 64
	maxPerUID   = 1024
	maxSockPath = 107 // bytes, unix(7)
)

// Listen listens on a unix socket that has its mode from the first moment, whatever
// the umask, in a directory that is not everybody's. What a dead process left there
// is replaced; a socket that answers is ErrSocketInUse.
// Connections say who made them; Close removes the socket.
func Listen(path string, mode fs.FileMode) (net.Listener, error) {
	if err := errors.Join(guarded(filepath.Dir(path)), vacant(path)); err != nil {
		return nil, fmt.Errorf("listen on socket: %w", err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, fmt.Errorf("listen on socket: %w", withoutPath(err))
	}
	defer func() { _ = os.RemoveAll(dir) }() // what stays is of no use to anybody
	l, err := listenIn(dir, path, mode)
	if err != nil {
		return nil, fmt.Errorf("listen on socket: %w", withoutPath(err))
	}
	return l, nil
}

// listenIn makes the socket in a directory that nobody else can enter, and moves
// it to its place when it is ready.
func listenIn(dir, path string, mode fs.FileMode) (*listener, error) {
	made := filepath.Join(dir, "s")
	if n := max(len(made), len(path)); n > maxSockPath {
		return nil, fmt.Errorf("the path has %d bytes, at most %d", n, maxSockPath)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	l := &listener{UnixListener: ln, path: path, conns: map[int]int{}}
	if err = os.Chmod(made, mode.Perm()); err == nil {
		if l.file, err = os.Lstat(made); err == nil {
			err = os.Rename(made, path)
		}
	}
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return l, nil
}

// guarded is nil where not everybody may replace what somebody else has made.
func guarded(dir string) error {
	st, err := os.Stat(dir)
	if err != nil {
		return withoutPath(err)
	}
	if st.Mode().Perm()&0o002 != 0 && st.Mode()&fs.ModeSticky == 0 {
		return ErrOpenDirectory
	}
	return nil
}

// vacant is nil where nothing is, or what a dead process left.
func vacant(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return withoutPath(err)
	}
	if st.Mode().Type() != fs.ModeSocket {
		return ErrNotSocket
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
		return ErrSocketInUse
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return ErrSocketInUse // it may: it cannot be asked
}

// withoutPath is what the system said, without the names.
func withoutPath(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// listener counts its connections and knows whose they are.
type listener struct {
	*net.UnixListener
	path string
	file fs.FileInfo

	mu    sync.Mutex  // guards what follows
	conns map[int]int // by uid
	total int
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := credentials(c)
		if err != nil || !l.enter(peer.UID) {
			_ = c.Close() // nobody, or too many: it says nothing and takes nothing
			continue
		}
		return &conn{UnixConn: c, peer: peer, leave: sync.OnceFunc(func() { l.leave(peer.UID) })}, nil
	}
}

func (l *listener) enter(uid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	room := maxConns
	if uid != 0 && uid != os.Geteuid() {
		room -= keptConns
	}
	if l.total >= room || l.conns[uid] >= maxPerUID {
		return false
	}
	l.total++
	l.conns[uid]++
	return true
}

func (l *listener) leave(uid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.conns[uid]--; l.conns[uid] == 0 {
		delete(l.conns, uid)
	}
}

// Addr implements net.Listener: the place that the socket has now.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close implements net.Listener. A socket that took the place of ours stays.
func (l *listener) Close() error {
	if st, err := os.Lstat(l.path); err == nil && os.SameFile(st, l.file) {
		_ = os.Remove(l.path) // one that stays is replaced at the next start
	}
	return l.UnixListener.Close()
}

// conn is a connection whose peer is known.
type conn struct {
	*net.UnixConn
	peer  peer
	leave func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.leave()
	return c.UnixConn.Close()
}
