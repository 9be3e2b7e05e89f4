package daemon

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/systemd"
)

// loop is one that must move for the watchdog to be fed.
type loop struct {
	name  string
	pulse func() uint64 // grows when the loop has moved
	poke  func()        // has an idle one move
	files bool          // it may wait for the file without being stuck

	seen  uint64
	still int // looks in a row at which it had not moved
}

// vital are all loops without which the daemon does not do its work. Taking in
// what applications wrote is a part of every look of the poller.
func (d *daemon) vital(p *prober) []*loop {
	return []*loop{
		{name: "poller", pulse: d.poller.Pulse, poke: d.poller.Wake, files: true},
		{name: "keeper", pulse: d.keeper.Pulse, poke: d.keeper.Poke, files: true},
		{name: "committer", pulse: d.ledger.Pulse, poke: d.ledger.Poke},
		{name: "api", pulse: p.pulse.Load, poke: p.wake},
	}
}

// looksPerLimit is how often the loops are looked at in the time after which the
// service manager acts; half of it a loop may take for one turn.
const looksPerLimit = 4

// unwatched is how long a loop may take for one turn where nobody watches.
const unwatched = 30 * time.Second

// watchdog tells the service manager that this daemon works, from the start until
// the drain is over: only while every loop moves. A loop that waits for another
// process's lock or for space on the disk is not stuck, and one whose file is lost
// ends by itself: neither is a reason to kill what runs.
func (d *daemon) watchdog(ctx context.Context) error {
	half, err := systemd.WatchdogInterval()
	if err != nil {
		return err
	}
	if half == 0 {
		half = unwatched // a loop that is stuck is logged and counted all the same
	}
	every := 2 * half / looksPerLimit
	p := &prober{path: d.cfg.Listen.Socket, limit: half, poke: make(chan struct{}, 1)}
	probing := make(chan struct{})
	go func() {
		defer close(probing)
		p.run(ctx)
	}()
	defer func() { <-probing }()
	loops := d.vital(p)
	for _, l := range loops {
		d.metrics.work.stuck.WithLabelValues(l.name).Set(0)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		for _, l := range loops {
			l.poke()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			d.feed(loops)
		}
	}
}

// feed looks once at every loop.
func (d *daemon) feed(loops []*loop) {
	h := d.ledger.Health()
	well := true
	for _, l := range loops {
		now := l.pulse()
		switch {
		case now != l.seen, h.Err != nil, l.files && (h.Busy > 0 || h.Full):
			l.seen, l.still = now, 0
			d.metrics.work.stuck.WithLabelValues(l.name).Set(0)
			continue
		}
		if l.still++; l.still < looksPerLimit/2 {
			continue
		}
		well = false
		d.metrics.work.stuck.WithLabelValues(l.name).Set(1)
		if l.still == looksPerLimit/2 {
			d.log.Error("a loop of the daemon is stuck: the watchdog is not fed any more", zap.String("loop", l.name))
			d.tell(systemd.Status("stuck: " + l.name))
		}
	}
	if well {
		d.tell(systemd.Alive())
	}
}

// prober asks the daemon's own socket, as a client does.
type prober struct {
	path  string
	limit time.Duration
	poke  chan struct{} // capacity 1
	pulse atomic.Uint64
}

func (p *prober) wake() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

func (p *prober) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.poke:
			if p.answers(ctx) {
				p.pulse.Add(1)
			}
		}
	}
}

// answers reports whether the socket's loop moves: it answers, or closes a
// connection that is one too many. A socket that somebody has taken away proves
// nothing against the loop behind it.
func (p *prober) answers(ctx context.Context) bool {
	limited, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(limited, "unix", p.path)
	if err != nil {
		return limited.Err() == nil
	}
	defer func() { _ = c.Close() }() // it was only asked
	defer context.AfterFunc(limited, func() { _ = c.Close() })()
	if _, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: outboxd\r\nConnection: close\r\n\r\n"); err == nil {
		_, _ = io.Copy(io.Discard, c) // what it answers does not matter
	}
	return limited.Err() == nil
}
