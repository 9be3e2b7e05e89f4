package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// file is the identity of what is open. It is only ever looked at with stat:
// opening it outside SQLite would drop SQLite's locks.
type file struct {
	path  string // as SQLite opened it, symbolic links resolved
	named string // as the caller named it
	db    inode

	mu    sync.Mutex // guards aside
	aside [2]inode   // the log and its index; zero until they exist
}

type inode struct{ dev, ino uint64 }

func stat(path string) (inode, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return inode{}, err
	}
	return inode{st.Dev, st.Ino}, nil
}

// locate resolves the path and, where that is asked for, creates a missing file
// for its owner's eyes only. created says that the file holds nothing yet.
func locate(path string, create bool) (f *file, created bool, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, false, fmt.Errorf("resolve database path: %w", err)
	}
	if create {
		created, err = createFile(abs)
		if err != nil {
			return nil, false, err
		}
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, false, pathError(err)
	}
	st, err := os.Stat(real)
	if err != nil {
		return nil, false, pathError(err)
	}
	if !st.Mode().IsRegular() {
		return nil, false, ErrNotDatabase
	}
	f = &file{path: real, named: abs}
	if f.db, err = stat(real); err != nil {
		return nil, false, pathError(err)
	}
	return f, created || st.Size() == 0, nil
}

// createFile makes an empty file with mode 0600: SQLite gives its -wal and -shm
// the same mode. mknod needs no descriptor: closing one would drop the locks of
// whoever has opened the file in this process meanwhile.
func createFile(path string) (bool, error) {
	err := unix.Mknod(path, unix.S_IFREG|0o600, 0)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrExist):
		return false, nil
	}
	return false, pathError(err)
}

func pathError(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err // the path stays out of messages
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: %w", ErrDiskFull, err)
	}
	return err
}

// same is ErrReplaced when the path, or the log or index beside it, is no longer
// what is open: what is committed then is seen by nobody.
func (f *file) same() error {
	db, err := stat(f.named)
	if err != nil || db != f.db {
		return ErrReplaced
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, suffix := range []string{"-wal", "-shm"} {
		now, err := stat(f.path + suffix)
		known := f.aside[i] != inode{}
		if known && (err != nil || now != f.aside[i]) {
			return ErrReplaced
		}
		if !known && err == nil {
			f.aside[i] = now
		}
	}
	return nil
}

// walBytes is the size of the log in bytes, 0 when there is none.
func (f *file) walBytes() int64 {
	st, err := os.Stat(f.path + "-wal")
	if err != nil {
		return 0
	}
	return st.Size()
}

// Magic numbers of statfs(2) for file systems on which WAL does not work.
var networkFS = map[int64]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x65735546: "FUSE",
	0x01021997: "9P",
}

var localFS = map[int64]string{
	0xef53:     "ext4",
	0x58465342: "xfs",
	0x9123683e: "btrfs",
	0x2fc12fc1: "zfs",
	0xf2f52010: "f2fs",
	0x794c7630: "overlayfs",
	0x01021994: "tmpfs",
	0x858458f6: "ramfs",
}

// FileSystem names a type of statfs(2), and says whether WAL is not safe on it.
func FileSystem(magic int64) (name string, network bool) {
	if name, network = networkFS[magic]; network {
		return name, true
	}
	if name, known := localFS[magic]; known {
		return name, false
	}
	return fmt.Sprintf("type %#x", magic), false
}

// network reports whether the file lies on a network file system.
func (f *file) network() (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(f.path, &st); err != nil {
		return false, fmt.Errorf("read file system type: %w", err)
	}
	_, network := FileSystem(int64(st.Type))
	return network, nil
}

// writable is ErrReadOnly when this user cannot write the file or create its
// log beside it. Access is checked with the effective user.
func (f *file) writable() error {
	for _, p := range []string{f.path, filepath.Dir(f.path)} {
		if err := unix.Faccessat(unix.AT_FDCWD, p, unix.W_OK, unix.AT_EACCESS); err != nil {
			return fmt.Errorf("%w: %w", ErrReadOnly, err)
		}
	}
	return nil
}
