package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/outboxd/outboxd/api"
)

// Options of Run.
type Options struct {
	Out     io.Writer // where it is shown; a terminal is redrawn in place
	Env     []string  // of the children, without what is outboxd's own; nil: none
	Keep    bool      // keep the temporary directory
	NoColor bool      // also where Out is a terminal
	Dumb    bool      // Out is no terminal that can be redrawn
	JSON    bool      // show only what was expected and found, as JSON
	Fault   string    // what the downstream does wrong: "" or Forgetful
}

// ErrUnmet says that something came out otherwise than it must. The table that
// was shown says what.
var ErrUnmet = errors.New("not everything was as expected")

// ErrOutput says that Out did not take what was to be shown.
var ErrOutput = errors.New("the output could not be written")

const (
	limit = 25 * time.Second      // for the whole
	tick  = 40 * time.Millisecond // between looks
	pause = time.Second           // in which the daemon is dead
)

var errTooLong = fmt.Errorf("it took longer than %s", limit)

// Run shows the five stories and compares what came of them with what must. It
// returns nil if all is as expected, ErrUnmet if not, context.Canceled after a
// signal, and other errors where the show could not be held. All that it started
// has ended when it returns.
func Run(ctx context.Context, o Options) (err error) {
	if o.Fault != "" && o.Fault != Forgetful {
		return ErrUnknownFault
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// Asked for, a closed pipe is an error of Write and not our end, so that
	// the directory goes too.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)

	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	at, err := newPlace()
	if err != nil {
		return err
	}
	s := newShow(o, program, at)
	defer func() { err = errors.Join(err, s.leave()) }()
	return s.run(ctx)
}

// show is one run of the demo. One goroutine uses it.
type show struct {
	o       Options
	program string
	at      place
	screen  *screen
	began   time.Time
	client  *api.Client
	socket  *http.Transport // to the daemon
	witness *http.Transport // to the downstream

	downstream, daemon *process // nil: not started
	address            string   // of the downstream

	found
}

func newShow(o Options, program string, at place) *show {
	s := &show{o: o, program: program, at: at, began: time.Now()}
	s.socket = api.Socket(at.socket())
	s.client = api.NewClient(s.socket)
	s.witness = &http.Transport{} // without the environment's proxy
	s.stories = stories()
	s.answers = make([]api.Answer, len(s.stories))
	s.screen = newScreen(o, s.stories)
	return s
}

// run plays, and judges what it came to, also when it took too long.
func (s *show) run(ctx context.Context) error {
	playing, cancel := context.WithTimeoutCause(ctx, limit, errTooLong)
	defer cancel()
	err := s.play(playing)
	late := err != nil && errors.Is(context.Cause(playing), errTooLong)
	switch {
	case ctx.Err() != nil:
		s.screen.write("\n") // a terminal shows ^C where the cursor is
		return ctx.Err()
	case err != nil && !late:
		s.screen.quote(s.at.lastWords())
		return err
	}
	return s.judge(late)
}

func (s *show) judge(late bool) error {
	if late {
		s.screen.say("It took longer than %s. This is how it stood then.", limit)
	}
	checks := s.found.checks()
	wrong := s.screen.verdict(checks)
	if wrong > 0 || late {
		s.screen.bad("%d of %d expectations were not met.", wrong, len(checks))
		return errors.Join(ErrUnmet, s.report(checks))
	}
	s.screen.end("Everything was as expected. It took %.1f s.", time.Since(s.began).Seconds())
	return errors.Join(s.screen.err, s.report(checks))
}

// report writes the checks where they are wanted as JSON.
func (s *show) report(checks []check) error {
	if !s.o.JSON {
		return nil
	}
	r := struct {
		Checks []check `json:"checks"`
		Kept   string  `json:"kept,omitzero"` // the directory
	}{Checks: checks}
	if s.o.Keep {
		r.Kept = s.at.dir
	}
	if err := json.MarshalWrite(s.o.Out, r, jsontext.WithIndent("  ")); err != nil {
		return errors.Join(ErrOutput, err)
	}
	return nil
}

// leave ends what runs and removes the directory.
func (s *show) leave() error {
	s.socket.CloseIdleConnections()
	s.witness.CloseIdleConnections()
	for _, p := range []*process{s.daemon, s.downstream} {
		if p != nil {
			p.kill()
		}
	}
	if s.o.Keep {
		s.screen.kept(s.at)
		return nil
	}
	if err := os.RemoveAll(s.at.dir); err != nil {
		return fmt.Errorf("remove the temporary directory: %w", err)
	}
	return nil
}

// command is this program with other arguments.
func (s *show) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, args...)
	cmd.Env = environment(s.o.Env)
	cmd.Dir = s.at.dir
	return cmd
}

// start starts it with its stderr in the log.
func (s *show) start(cmd *exec.Cmd) (*process, error) {
	log, err := s.at.openLog()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = log
	p, err := start(cmd)
	return p, errors.Join(err, log.Close())
}
