package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/outboxd/outboxd/api"
)

// HiddenCommand are the words with which this program is the downstream; a
// fault may follow.
func HiddenCommand() []string { return []string{"demo", "downstream"} }

// errEnded: a child ended that was still needed.
var errEnded = errors.New("ended unexpectedly")

// play is the whole show, from the curtain to the audit.
func (s *show) play(ctx context.Context) error {
	if err := s.startDownstream(); err != nil {
		return fmt.Errorf("start the downstream: %w", err)
	}
	if err := s.at.configure(s.address); err != nil {
		return err
	}
	if err := s.startDaemon(ctx); err != nil {
		return fmt.Errorf("start outboxd: %w", err)
	}
	s.screen.open(s.daemon.pid(), s.downstream.pid())
	if err := s.submit(ctx); err != nil {
		return err
	}
	if err := s.watch(ctx, s.onlyTheKilledIsLeft); err != nil {
		return err
	}
	if err := s.crash(ctx); err != nil {
		return err
	}
	if err := s.watch(ctx, s.allSettled); err != nil {
		return err
	}
	return s.close(ctx)
}

// startDownstream returns when the downstream has said its address.
func (s *show) startDownstream() error {
	args := HiddenCommand()
	if s.o.Fault != "" {
		args = append(args, s.o.Fault)
	}
	cmd := s.command(args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if s.downstream, err = s.start(cmd); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("read its address: %w", err)
	}
	s.address = strings.TrimSpace(line)
	return nil
}

// startDaemon returns when the daemon answers.
func (s *show) startDaemon(ctx context.Context) (err error) {
	if s.daemon, err = s.start(s.command("run", "--config", s.at.config())); err != nil {
		return err
	}
	return s.until(ctx, func() (bool, error) {
		_, err := s.client.Tools(ctx)
		return err == nil, s.dead()
	})
}

// dead says which child has ended that should not have.
func (s *show) dead() error {
	switch {
	case !s.downstream.alive():
		return fmt.Errorf("the downstream %w: %s", errEnded, s.downstream.how())
	case !s.daemon.alive():
		return fmt.Errorf("outboxd %w: %s", errEnded, s.daemon.how())
	}
	return nil
}

// until looks again and again. A terminal that has gone ends it.
func (s *show) until(ctx context.Context, done func() (bool, error)) error {
	again := time.NewTicker(tick)
	defer again.Stop()
	for {
		ok, err := done()
		if err = errors.Join(err, s.screen.err); err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again.C:
		}
	}
}

func (s *show) submit(ctx context.Context) (err error) {
	for i, story := range s.stories {
		if s.answers[i], err = s.client.Submit(ctx, story.body(), 0); err != nil {
			return fmt.Errorf("submit %s: %w", story.key, err)
		}
	}
	return nil
}

// watch shows how things stand until they stand as wanted.
func (s *show) watch(ctx context.Context, reached func() bool) error {
	return s.until(ctx, func() (bool, error) {
		if err := s.look(ctx); err != nil {
			return false, err
		}
		s.screen.update(s.rows())
		return reached(), s.dead()
	})
}

// look asks the downstream and the daemon. What does not answer yet is asked
// again at the next look.
func (s *show) look(ctx context.Context) error {
	if seen, err := s.ask(ctx); err == nil {
		s.seen = seen
	}
	for i := range s.answers {
		a, err := s.client.Status(ctx, s.answers[i].StatusRef, 0)
		if _, refused := errors.AsType[*api.Problem](err); refused {
			return fmt.Errorf("read status of %s: %w", s.stories[i].key, err)
		}
		if err == nil {
			s.answers[i] = a
		}
	}
	return nil
}

// ask reads what the downstream counted.
func (s *show) ask(ctx context.Context) (seen testimony, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.address+"/witness", nil)
	if err != nil {
		return seen, err
	}
	res, err := s.witness.RoundTrip(r)
	if err != nil {
		return seen, err
	}
	defer res.Body.Close()
	return seen, json.UnmarshalRead(res.Body, &seen)
}

func (s *show) rows() []row {
	rows := make([]row, len(s.stories))
	for i, a := range s.answers {
		rows[i] = row{a.Status, a.Attempts, s.seen.effects(a.StatusRef)}
	}
	return rows
}

// onlyTheKilledIsLeft: the others have come to their end, and the downstream
// has the request that is to be interrupted.
func (s *show) onlyTheKilledIsLeft() bool {
	for i, a := range s.answers {
		if i != killed && !settled(a) {
			return false
		}
	}
	return len(s.seen.of(s.answers[killed].StatusRef)) > 0
}

func (s *show) allSettled() bool {
	for _, a := range s.answers {
		if !settled(a) {
			return false
		}
	}
	return true
}

// settled: nothing more happens to it by itself.
func settled(a api.Answer) bool {
	switch a.Status {
	case "succeeded", "dead", "discarded", "waiting":
		return true
	case "unknown":
		return a.DueAt.IsZero()
	}
	return false
}

// crash kills the daemon, as a power cut or the kernel would, and starts it
// again.
func (s *show) crash(ctx context.Context) error {
	pid := s.daemon.pid()
	s.daemon.kill()
	s.atKill = s.answers[killed].Status
	s.screen.say("kill -9 %d: outboxd is dead, and never saw the answer to %s.", pid, s.stories[killed].key)
	select { // long enough to be seen
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pause):
	}
	if err := s.startDaemon(ctx); err != nil {
		return fmt.Errorf("start outboxd again: %w", err)
	}
	s.screen.say("Outboxd is started again (process %d) on the same file.", s.daemon.pid())
	return nil
}

// close audits the file, stops the daemon as a service manager would, and hears
// the downstream last: nothing can be sent any more.
func (s *show) close(ctx context.Context) (err error) {
	if s.audit, err = s.client.Audit(ctx); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if err := s.daemon.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop outboxd: %w", err)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.daemon.ended:
		s.stopped = s.daemon.how()
	}
	if s.seen, err = s.ask(ctx); err != nil {
		return fmt.Errorf("ask the downstream: %w", err)
	}
	return nil
}
