package api

import (
	"context"
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// peer is who is at the other end, as the kernel says.
type peer struct {
	UID  int
	GIDs []int // all groups of the process that connected
}

type peerKey struct{}

func withPeer(ctx context.Context, p peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

func peerOf(ctx context.Context) (peer, bool) {
	p, ok := ctx.Value(peerKey{}).(peer)
	return p, ok
}

// credentials asks the kernel who connected (unix(7), SO_PEERCRED, SO_PEERGROUPS).
func credentials(c *net.UnixConn) (p peer, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return p, fmt.Errorf("look at socket: %w", err)
	}
	var asked error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); asked != nil {
			return
		}
		p.UID = int(cred.Uid)
		p.GIDs = append(peerGroups(fd), int(cred.Gid))
	})
	if err == nil {
		err = asked
	}
	if err != nil {
		return p, fmt.Errorf("read peer credentials: %w", err)
	}
	return p, nil
}

// peerGroups is the peer's supplementary groups; a kernel that cannot tell gives
// none, which grants nothing.
func peerGroups(fd uintptr) []int {
	var gids [1024]uint32 // NGROUPS_MAX is 65536; who has more is not recognised by group
	size := uint32(unsafe.Sizeof(gids))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&gids)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return nil
	}
	list := make([]int, size/4)
	for i := range list {
		list[i] = int(gids[i])
	}
	return list
}
