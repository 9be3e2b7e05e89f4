package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledger"
)

// ErrLost is the cause of a handler's cancellation when its entry has another
// token.
var ErrLost = errors.New("lease lost: another worker holds the entry")

// sweepEvery is how often leases that are over and that nobody here holds are
// looked for without a reason to.
const sweepEvery = 5 * time.Minute

// Options of a Keeper.
type Options struct {
	TTL       time.Duration // how long a lease lasts without renewal
	Heartbeat time.Duration // how often it is renewed

	// Renewed is told of each renewal: how late it was committed and whether it
	// failed. nil: nobody is.
	Renewed func(lag time.Duration, failed bool)
	// Lapsed is told how many leases were found to be over.
	Lapsed func(n int)
}

// Keeper renews all leases of this process in one statement and cancels the
// handler whose lease is lost.
type Keeper struct {
	l    *ledger.Ledger
	o    Options
	log  *zap.Logger
	look chan struct{} // capacity 1: a claim without a holder is possible

	poke  chan struct{} // capacity 1: somebody looks whether Run moves
	pulse atomic.Uint64 // turns of Run's loop

	mu   sync.Mutex // guards held
	held map[int64]lease
}

type lease struct {
	token  int64
	cancel context.CancelCauseFunc
}

// NewKeeper returns a keeper that holds nothing yet.
func NewKeeper(l *ledger.Ledger, o Options, log *zap.Logger) *Keeper {
	if o.Renewed == nil {
		o.Renewed = func(time.Duration, bool) {}
	}
	if o.Lapsed == nil {
		o.Lapsed = func(int) {}
	}
	return &Keeper{l: l, o: o, log: log, look: make(chan struct{}, 1), poke: make(chan struct{}, 1), held: map[int64]lease{}}
}

// Until is when a lease that is taken at now lapses.
func (k *Keeper) Until(now time.Time) time.Time { return now.Add(k.o.TTL) }

// Hold renews the lease of h until Drop. cancel is called with ErrLost when it
// is lost: to another process, or to a later claim of this one.
func (k *Keeper) Hold(h entry.Held, cancel context.CancelCauseFunc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old, ok := k.held[h.ID]; ok {
		old.cancel(ErrLost)
	}
	k.held[h.ID] = lease{h.Token, cancel}
}

// Drop ends the renewal of h's lease.
func (k *Keeper) Drop(h entry.Held) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[h.ID].token == h.Token {
		delete(k.held, h.ID)
	}
}

// Sweep has leases that nobody holds ended as soon as those are over that were
// taken until now: a claim may have been committed although it was answered with
// an error.
func (k *Keeper) Sweep() {
	select {
	case k.look <- struct{}{}:
	default:
	}
}

// Pulse grows whenever Run has done another turn: at the latest after a Poke,
// unless it is stuck or waits for the file.
func (k *Keeper) Pulse() uint64 { return k.pulse.Load() }

// Poke has Run do a turn.
func (k *Keeper) Poke() {
	select {
	case k.poke <- struct{}{}:
	default:
	}
}

// Run renews until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	beat := time.NewTicker(k.o.Heartbeat)
	defer beat.Stop()
	sweep := time.NewTimer(sweepEvery)
	defer sweep.Stop()
	for {
		k.pulse.Add(1)
		select {
		case <-ctx.Done():
			return nil
		case <-k.poke:
		case due := <-beat.C:
			k.renew(ctx, due)
		case <-sweep.C:
			k.sweep(ctx)
			sweep.Reset(sweepEvery)
		case <-k.look:
			sweep.Reset(k.o.TTL + k.o.Heartbeat)
		}
	}
}

// renew writes ahead of everything else. A renewal that fails is repeated at the
// next beat: no lease of this process ends by time meanwhile. An entry that
// nobody has a lease on is left to its handler, whose late outcome may settle it.
func (k *Keeper) renew(ctx context.Context, due time.Time) {
	held := k.snapshot()
	if len(held) == 0 {
		return
	}
	ids := make([]int64, 0, len(held))
	for id := range held {
		ids = append(ids, id)
	}
	var tokens map[int64]int64
	err := k.l.WriteFirst(ctx, func(tx *ledger.Tx) (err error) {
		tokens, err = entry.Renew(tx, ids, k.Until(tx.Now()))
		return err
	})
	k.o.Renewed(time.Since(due), err != nil)
	if err != nil {
		if ctx.Err() == nil {
			k.log.Warn("leases not renewed", zap.Int("held", len(ids)), zap.Error(err))
		}
		return
	}
	for id, l := range held {
		if now, leased := tokens[id]; leased && now != l.token {
			k.lose(id, l)
		}
	}
}

// lose cancels a handler whose lease is another's, unless it has ended since.
func (k *Keeper) lose(id int64, l lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[id].token != l.token {
		return
	}
	delete(k.held, id)
	l.cancel(ErrLost)
}

func (k *Keeper) snapshot() map[int64]lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	held := make(map[int64]lease, len(k.held))
	for id, l := range k.held {
		held[id] = l
	}
	return held
}

// sweep ends leases that are over and that no goroutine of this process holds,
// also of tools that are paused or not configured, which no pass looks at.
func (k *Keeper) sweep(ctx context.Context) {
	n, err := lapse(ctx, k.l, func(d entry.Due) bool { return k.l.Now().After(d.DueAt) && !k.holds(d) })
	if err != nil {
		if ctx.Err() == nil {
			k.log.Warn("leases without a holder not looked for", zap.Error(err))
		}
		return
	}
	if n > 0 {
		k.log.Warn("leases without a holder ended", zap.Int("entries", n))
		k.Lapsed(n)
	}
}

// Lapsed counts n leases that were found to be over.
func (k *Keeper) Lapsed(n int) { k.o.Lapsed(n) }

func (k *Keeper) holds(d entry.Due) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held[d.ID].token == d.Token
}
