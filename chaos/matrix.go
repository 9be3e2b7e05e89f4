package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/chaos/point"
)

// Matrix kills a daemon at every point that an operation passes which succeeds,
// once per point, on a scratch database each time, and tells what a downstream
// made of it. The tool is real: each point causes its effect, at least once.
type Matrix struct {
	Daemon  Daemon                        // Args say which configuration; Socket, Log and database are the matrix's
	Dir     string                        // of the scratch files; its name is short, for the sockets
	Case    api.Case                      // without its key
	Wait    time.Duration                 // how long an operation may take until it is settled
	WireKey func(key string) string       // what the downstream sees as key
	Saw     func(key string) (Saw, error) // asks the downstream about a wire key
}

// Saw is what a downstream says of a key.
type Saw struct {
	Known   bool // it could be asked
	Effects int  // how often it took effect
	Only    bool // it told only whether it took effect, not how often
}

// Row is what became of one point.
type Row struct {
	Point    string `json:"point"`
	Killed   bool   `json:"killed"` // false: no operation that succeeds passes it
	Status   string `json:"status,omitzero"`
	Reason   string `json:"reason,omitzero"`
	Attempts int    `json:"attempts,omitzero"`
	Effects  *int   `json:"effects,omitzero"` // nil: nobody knows
	Problem  string `json:"problem,omitzero"`
}

// passed are the points of an operation that is accepted, sent and delivered.
func passed() []point.Point {
	list := []point.Point{point.Boot.Before(), point.Boot.After()}
	for _, k := range []point.Kind{point.Accept, point.Claim, point.Mark} {
		list = append(list, k.Before(), k.After())
	}
	return append(list, point.SendBefore, point.SendSent, point.SendAnswered, point.Settle.Before(), point.Settle.After())
}

// Run goes through all points and tells each row as it is known.
func (m Matrix) Run(ctx context.Context, tell func(Row)) (rows []Row, err error) {
	for i, p := range passed() {
		row, err := m.one(ctx, i, p)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", p, err)
		}
		tell(row)
		rows = append(rows, row)
	}
	return rows, nil
}

// settleTime is how long a point may take to be passed once the operation is
// settled: it never will be.
const settleTime = 200 * time.Millisecond

func (m Matrix) one(ctx context.Context, i int, p point.Point) (Row, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*m.Wait+time.Minute)
	defer cancel()
	row := Row{Point: p.String()}
	d := m.Daemon
	d.Socket, d.Log = filepath.Join(m.Dir, fmt.Sprint("s", i)), filepath.Join(m.Dir, fmt.Sprint("log", i))
	d.Args = append([]string{"--db", filepath.Join(m.Dir, fmt.Sprint("db", i)), "--socket", d.Socket, "--chaos-create"}, d.Args...)
	armed, err := d.Armed(point.Step{Point: p, Action: point.Kill, Nth: 1}.String()).Start()
	if err != nil {
		return row, err
	}
	defer armed.Kill()
	c := m.Case
	c.IdempotencyKey = fmt.Sprintf("chaos-%s-%d-%d", p, os.Getpid(), time.Now().UnixNano())
	client := d.Client()
	answer, err := insist(ctx, armed, client, c)
	if err != nil {
		return row, err
	}
	if answer.StatusRef != "" {
		m.passes(ctx, armed, client, answer.StatusRef)
	}
	row.Killed = !armed.Alive() && armed.Signalled() == syscall.SIGKILL
	if !armed.Alive() && !row.Killed {
		return row, fmt.Errorf("%w: %s", ErrEnded, lastLine(d.Log))
	}
	if !row.Killed {
		return row, nil
	}
	return m.after(ctx, d, c, row)
}

// passes waits until the daemon has died at its point, or the operation is over
// without it.
func (m Matrix) passes(ctx context.Context, armed *Running, client *api.Client, ref string) {
	waiting, cancel := context.WithTimeout(ctx, m.Wait)
	defer cancel()
	go func() {
		select {
		case <-armed.Ended():
			cancel()
		case <-waiting.Done():
		}
	}()
	_, _ = client.Status(waiting, ref, m.Wait) // the daemon dies under it
	select {
	case <-armed.Ended():
	case <-time.After(settleTime):
	}
}

// insist submits until it is answered or the daemon is gone: then the answer is
// empty.
func insist(ctx context.Context, r *Running, client *api.Client, c api.Case) (api.Answer, error) {
	for {
		a, err := client.Submit(ctx, c, 0)
		if err == nil {
			return a, nil
		}
		if p, ok := errors.AsType[*api.Problem](err); ok && p.Status < 500 {
			return a, err
		}
		select {
		case <-r.Ended():
			return api.Answer{}, nil
		case <-ctx.Done():
			return a, err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// after starts a daemon that is not armed, submits the same key, lets it finish
// and asks the downstream.
func (m Matrix) after(ctx context.Context, d Daemon, c api.Case, row Row) (Row, error) {
	r, err := d.Up(ctx)
	if r != nil {
		defer r.Kill()
	}
	if err != nil {
		return row, fmt.Errorf("start after the kill: %w", err)
	}
	client := d.Client()
	a, err := insist(ctx, r, client, c)
	if err != nil {
		return row, err
	}
	if a, err = client.Status(ctx, a.StatusRef, m.Wait); err != nil {
		return row, err
	}
	row.Status, row.Reason, row.Attempts = a.Status, a.Reason, a.Attempts
	saw, err := m.Saw(m.WireKey(c.IdempotencyKey))
	if err != nil {
		return row, fmt.Errorf("ask the downstream: %w", err)
	}
	if saw.Known {
		row.Effects = &saw.Effects
	}
	row.Problem = judge(row.Point, a, saw)
	return row, nil
}

// judge says in words what is wrong; "": nothing is.
func judge(at string, a api.Answer, saw Saw) string {
	switch {
	case a.Status != "succeeded" && a.Status != "unknown" && a.Status != "dead":
		return "not settled after " + at + ": it is " + a.Status
	case !saw.Known:
		return ""
	case saw.Effects > 1:
		return times(saw.Effects) + " after " + at + ": the downstream does not deduplicate"
	case a.Status == "succeeded" && saw.Effects == 0:
		return "delivered after " + at + ", and the downstream knows nothing of it"
	case a.Status == "dead" && saw.Effects > 0:
		return "dead after " + at + ", and it took effect"
	}
	return ""
}

func times(n int) string {
	if n == 2 {
		return "twice"
	}
	return fmt.Sprint(n, " times")
}

func lastLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	text = bytes.TrimSpace(text)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}
