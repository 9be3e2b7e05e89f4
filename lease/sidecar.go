package lease

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Sidecar is what the lock file keeps of the database beside it, so that a file
// that was put back from an older copy is known for one. The database cannot tell
// by itself: it is as whole as ever.
type Sidecar struct {
	Lineage string `json:"lineage"`
	Floor   int64  `json:"floor"`   // a token that the file has given out: with a smaller last one it is older
	Ceiling int64  `json:"ceiling"` // no larger token was given out
}

// Where it stands: behind the mark, in a sector of its own.
const (
	sidecarAt   = 512
	sidecarSize = 512
)

// Sidecar reads it; the zero value where there is none.
func (l *Lock) Sidecar() (s Sidecar, err error) {
	b, err := io.ReadAll(io.NewSectionReader(l.f, sidecarAt, sidecarSize))
	if err != nil {
		return s, fmt.Errorf("read lock file: %w", err)
	}
	if json.Unmarshal(b, &s) != nil {
		return Sidecar{}, nil // none yet, or a write that was cut: what it told is lost, and nothing else
	}
	return s, nil
}

// Reserve makes durable that tokens up to ceiling may be given out, and that the
// file holds floor. Neither ever sinks for one lineage. Several processes that
// share the lock may do so at once.
func (l *Lock) Reserve(lineage string, floor, ceiling int64) error {
	return l.put(func(s Sidecar) Sidecar {
		if s.Lineage != lineage {
			return Sidecar{lineage, floor, ceiling}
		}
		return Sidecar{lineage, max(s.Floor, floor), max(s.Ceiling, ceiling)}
	})
}

// Settle makes durable that last is the last token of the file, which will give
// out no other before somebody reserves it. Where others may, it only reserves.
func (l *Lock) Settle(lineage string, last int64) error {
	if l.mode != Exclusive {
		return l.Reserve(lineage, last, last)
	}
	return l.put(func(Sidecar) Sidecar { return Sidecar{lineage, last, last} })
}

func (l *Lock) put(change func(Sidecar) Sidecar) error {
	release, err := alone(l.f)
	if err != nil {
		return err
	}
	defer release()
	s, err := l.Sidecar()
	if err != nil {
		return err
	}
	next := change(s)
	if next == s {
		return nil
	}
	b, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("encode lock file: %w", err)
	}
	if _, err := l.f.WriteAt(fmt.Appendf(nil, "%-*s\n", sidecarSize-1, b), sidecarAt); err != nil {
		return fmt.Errorf("write lock file: %w", full(err))
	}
	if err := l.f.Sync(); err != nil {
		return fmt.Errorf("sync lock file: %w", full(err))
	}
	return nil
}

// alone keeps the other processes that have the lock file open from its sidecar.
func alone(f *os.File) (release func(), err error) {
	region := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: sidecarAt, Len: sidecarSize}
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLKW, &region)
	}
	if err != nil {
		return nil, fmt.Errorf("lock sidecar: %w", err)
	}
	return func() {
		region.Type = unix.F_UNLCK
		_ = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &region) // it is ours
	}, nil
}
