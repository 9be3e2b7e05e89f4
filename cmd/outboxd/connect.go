package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/lease"
)

// access is what a command does to a file that it opens itself.
type access int

const (
	looks      access = iota // reads, and the file exists
	controls                 // writes, and the file exists
	sends                    // may call a handler, and the file exists
	submits                  // writes, and may create the file
	dispatches               // may call a handler, and may create the file
)

// link is a way to the API: a daemon's socket, or the file opened here.
type link struct {
	*api.Client
	local bool
	close func() error
}

// startTime is how long a daemon that holds the file, but answers nowhere yet, is
// waited for: it may just be starting, or stopping.
const (
	startTime = 5 * time.Second
	startTick = 50 * time.Millisecond
)

// with calls the API through the daemon that answers on the socket, else on the
// file.
func (a *app) with(ctx context.Context, how access, fn func(*link) error) error {
	l, err := a.connect(ctx, how)
	if err != nil {
		return err
	}
	return errors.Join(fn(l), l.close())
}

func (a *app) connect(ctx context.Context, how access) (*link, error) {
	if a.flags.socket != "" { // then no config is needed
		if l, _, err := viaSocket(a.flags.socket); l != nil || err != nil {
			return l, err
		}
	}
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(startTime); ; {
		l, err := a.reach(ctx, cfg, how)
		held, isHeld := errors.AsType[*lease.HeldError](err)
		if !isHeld {
			return l, err
		}
		if l, pid, err := viaSocket(cfg.Listen.Socket); err == nil && l != nil && pid == held.Holder.PID {
			return l, nil // --db names the file of the daemon that answers there
		}
		if cfg.Listen.Socket == "" || time.Now().After(end) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(startTick):
		}
	}
}

// reach looks once for a daemon and then opens the file. A --db that is not the
// config's file is not what the daemon of the config's socket works on.
func (a *app) reach(ctx context.Context, cfg *config.Config, how access) (*link, error) {
	if a.flags.socket != "" || a.ownFile() {
		if l, _, err := viaSocket(cfg.Listen.Socket); l != nil || err != nil {
			return l, err
		}
	}
	if cfg.Database.Path == "" {
		return nil, &coded{"NO_DAEMON", "no daemon takes connections at the socket, and no database is named: use --config, --db or --socket"}
	}
	if st, err := os.Stat(filepath.Dir(cfg.Database.Path)); gone(err) || (err == nil && !st.IsDir()) {
		return nil, errNoDirectory
	}
	o := daemon.Options{Create: how == submits || how == dispatches, ReadOnly: how == looks, Sends: how == sends || how == dispatches, Version: version()}
	c, end, err := daemon.Local(ctx, cfg, o, zap.NewNop())
	if err != nil {
		return nil, err
	}
	return &link{Client: c, local: true, close: end}, nil
}

// ownFile: the command works on the file that the config names.
func (a *app) ownFile() bool {
	if a.flags.db == "" {
		return true
	}
	cfg, err := a.read(a.configPath())
	return err == nil && sameFile(cfg.Database.Path, a.flags.db)
}

// viaSocket is a link to the daemon that takes connections at path, with its
// process id; nil where nobody does.
func viaSocket(path string) (l *link, pid int, err error) {
	if path == "" {
		return nil, 0, nil
	}
	c, err := net.DialTimeout("unix", path, startTime)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ECONNREFUSED):
		return nil, 0, nil
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return nil, 0, &coded{"PERMISSION_DENIED", "this user may not connect to the socket"}
	case err != nil:
		return nil, 0, err
	}
	pid = peer(c)
	t := api.Socket(path)
	return &link{Client: api.NewClient(t), close: func() error { t.CloseIdleConnections(); return nil }}, pid, c.Close()
}

// peer is the process that listens at the other end; 0: not known.
func peer(c net.Conn) (pid int) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0
	}
	err = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	if err != nil {
		return 0
	}
	return pid
}
