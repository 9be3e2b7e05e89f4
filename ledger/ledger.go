package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/outboxd/outboxd/chaos/point"
)

// Options of Open. The zero value is what a daemon uses on an existing file.
type Options struct {
	Create         bool             // create a missing file, mode 0600
	ReadOnly       bool             // no writer: Write answers ErrClosed
	Readers        int              // read connections; 0: 4
	AllowNetworkFS bool             // open a file on a network file system all the same
	Group          int              // whose members open the file too: mode 0660; 0: nobody's
	Complete       bool             // copy the whole log before anything is answered
	Migrate        bool             // bring an older schema up to date; only under the exclusive lock
	Busy           time.Duration    // how long opening waits for another process's lock; 0: 10 s
	Now            func() time.Time // nil: time.Now

	// ForChaos marks a file that this creates as one that processes may be armed
	// against (package chaos/point). Nothing else can mark one.
	ForChaos bool
	// Armed is what is to break. It is turned on before anything is written; a file
	// that is not marked is refused with ErrNotForChaos.
	Armed point.Plan

	// Sidecar keeps which tokens may have been given out. nil: nobody does.
	Sidecar Sidecar

	// Observe is told of every batch that wrote: how many closures it held and
	// how long its COMMIT took. nil: nobody is.
	Observe func(closures int, commit time.Duration)

	// Ended does what follows from the end of entries, in the transaction of each
	// closure in which some ended. nil: nothing does.
	Ended func(tx *Tx, operations []int64) error

	// Migrating is told of each step before it is done. nil: nobody is.
	Migrating func(from, to int64)
}

// Ledger is an open file. It is safe for concurrent use.
type Ledger struct {
	opts    Options
	file    *file
	epoch   int64
	q       *queue
	readers *puddle.Pool[*conn]
	ckpt    *checkpointer
	health  health
	pulse   atomic.Uint64 // turns of the committer

	err  atomic.Pointer[error] // why nothing can be written any more
	dead chan struct{}         // closed with err
	once sync.Once

	reading context.Context // of every Read; Close ends it
	hush    context.CancelFunc
	stop    chan struct{}
	closing sync.Once
	work    sync.WaitGroup
}

// Open opens the file and, unless it is only to be read, commits the boot
// record before it returns: that makes durable what an earlier process wrote
// but had not synced. Errors are those of Code.
func Open(ctx context.Context, path string, o Options) (*Ledger, error) {
	l, created, err := locateLedger(path, o)
	if err != nil {
		return nil, err
	}
	var w *conn
	if !o.ReadOnly {
		if w, err = l.boot(ctx, created); err != nil {
			return nil, err
		}
	}
	if err := l.start(ctx, w); err != nil {
		return nil, err
	}
	if o.ReadOnly {
		if err := l.Read(ctx, readable); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

func locateLedger(path string, o Options) (*Ledger, bool, error) {
	if o.Readers == 0 {
		o.Readers = 4
	}
	if o.Busy == 0 {
		o.Busy = 10 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Observe == nil {
		o.Observe = func(int, time.Duration) {}
	}
	if o.Ended == nil {
		o.Ended = func(*Tx, []int64) error { return nil }
	}
	if o.Migrating == nil {
		o.Migrating = func(int64, int64) {}
	}
	if err := CheckOwner(path); err != nil {
		return nil, false, err
	}
	f, created, err := locate(path, o.Create && !o.ReadOnly)
	if err != nil {
		return nil, false, err
	}
	if o.Group != 0 && !o.ReadOnly {
		if err := f.share(o.Group); err != nil {
			return nil, false, err
		}
	}
	if net, err := f.network(); err != nil {
		return nil, false, err
	} else if net && !o.AllowNetworkFS {
		return nil, false, ErrNetworkFS
	}
	if !o.ReadOnly {
		if err := f.writable(); err != nil {
			return nil, false, err
		}
	}
	l := &Ledger{opts: o, file: f, q: newQueue(), dead: make(chan struct{}), stop: make(chan struct{})}
	l.reading, l.hush = context.WithCancel(context.Background())
	return l, created, nil
}

// start opens the other connections and the goroutines that own them.
func (l *Ledger) start(ctx context.Context, w *conn) (err error) {
	if l.readers, err = newReaders(l.file.path, l.opts.Readers); err != nil {
		if w != nil {
			err = errors.Join(err, w.close())
		}
		return fmt.Errorf("open readers: %w", err)
	}
	l.ckpt = &checkpointer{l: l, wake: make(chan struct{}, 1)}
	if w == nil {
		l.q.close(ErrClosed)
		return nil
	}
	if l.ckpt.c, err = connect(l.file.path, checkpointing); err != nil {
		l.readers.Close()
		return errors.Join(err, w.close())
	}
	if l.opts.Complete {
		if err := l.ckpt.complete(ctx, l.opts.Busy); err != nil {
			l.readers.Close()
			return errors.Join(err, l.ckpt.close(), w.close())
		}
	}
	c := &committer{l: l, q: l.q, c: w, others: newNeighbours(l.file), given: reservation{side: l.opts.Sidecar}}
	l.work.Go(func() {
		c.run()
		if c.c != nil {
			_ = c.c.close() // everything it had to say was said by COMMIT
		}
	})
	l.work.Go(func() { l.ckpt.loop(l.stop) })
	return nil
}

// Write hands fn to the committer and returns once the batch that it ran in is
// durable. Its context bounds only the wait in the queue: once fn has run, the
// answer is waited for. fn may run more than once and must touch nothing
// outside the transaction; what it computed counts only after Write returned
// nil. An error of fn undoes what fn did and is returned as it is.
func (l *Ledger) Write(ctx context.Context, fn func(*Tx) error) error {
	return l.write(ctx, fn, false)
}

// WriteFirst is Write ahead of everything that waits: for heartbeats.
func (l *Ledger) WriteFirst(ctx context.Context, fn func(*Tx) error) error {
	return l.write(ctx, fn, true)
}

func (l *Ledger) write(ctx context.Context, fn func(*Tx) error, urgent bool) error {
	r := &request{ctx: ctx, fn: fn, done: make(chan error, 1)}
	if err := l.q.push(r, urgent); err != nil {
		return err
	}
	return <-r.done
}

// Epoch is the boot epoch of this process: it owns what it claims under it.
func (l *Ledger) Epoch() int64 { return l.epoch }

// Path is the file's real path.
func (l *Ledger) Path() string { return l.file.path }

// Now is the ledger's clock.
func (l *Ledger) Now() time.Time { return l.now() }

func (l *Ledger) now() time.Time { return l.opts.Now().UTC() }

// Dead is closed when nothing can be written any more; Err says why.
func (l *Ledger) Dead() <-chan struct{} { return l.dead }

// Err is why nothing can be written any more, or nil.
func (l *Ledger) Err() error {
	if e := l.err.Load(); e != nil {
		return *e
	}
	return nil
}

func (l *Ledger) failed() bool { return l.err.Load() != nil }

// Check is ErrReplaced when the path no longer names the open file. It ends the
// ledger for good.
func (l *Ledger) Check() error {
	if err := l.file.same(); err != nil {
		l.fail(err)
		return err
	}
	return nil
}

func (l *Ledger) fail(err error) {
	l.once.Do(func() {
		l.err.Store(&err)
		l.q.close(err)
		close(l.dead)
	})
}

// Close lets what waits be written, then closes every connection. While another
// process holds the write lock it waits for it for some seconds. A Read that runs
// is interrupted: it answers ErrClosed. A second Close does nothing.
func (l *Ledger) Close() error {
	l.q.close(ErrClosed)
	l.hush()
	l.closing.Do(func() { close(l.stop) })
	l.work.Wait()
	l.readers.Close()
	return l.ckpt.close()
}
