package demo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
)

// row is how one operation stands.
type row struct {
	status            string // empty: not submitted yet
	attempts, effects int
}

// screen is where the demo is shown. On a terminal that has room, one table is
// redrawn in place; elsewhere each change is a line. After a write that failed
// nothing more is written.
type screen struct {
	out     io.Writer
	term    *os.File // nil: no terminal, or one without room
	colour  bool
	stories []story
	began   time.Time

	rows  []row
	drawn int   // lines of the table that stand above the cursor
	err   error // of the first write that failed
}

// smallest is the terminal, in columns and lines, on which the table is redrawn.
const (
	smallestWidth  = 60
	smallestHeight = 12
)

func newScreen(o Options, list []story) *screen {
	s := &screen{out: o.Out, stories: list, began: time.Now(), rows: make([]row, len(list))}
	if o.JSON {
		s.out = io.Discard
	}
	f, ok := s.out.(*os.File)
	if !ok || o.Dumb || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	s.colour = !o.NoColor
	if width, height, err := term.GetSize(int(f.Fd())); err == nil && width >= smallestWidth && height >= smallestHeight {
		s.term = f
	}
	return s
}

func (s *screen) write(text string) {
	if s.err != nil {
		return
	}
	if _, err := io.WriteString(s.out, text); err != nil {
		s.err = errors.Join(ErrOutput, err)
	}
}

const introduction = `
Five orders of a shop. For each, another service has to do something: the
"downstream". It is a process of its own (%d) and counts what really
happens to it. Outboxd, a process too (%d), has the orders in a file and
sees to it that each ends with a proof, whatever goes wrong: it was done, or
it was not.

  attempts   how often outboxd tried
  effects    how often the downstream really did it; here never more than once
  status     pending: waits for its turn. in_progress: a request is on its way.
             unknown: it may have happened, there is no proof yet.
             succeeded: proof that it was done. dead: proof that it was not.

`

// open says what is to be seen, and shows the table for the first time.
func (s *screen) open(daemon, downstream int) {
	s.write(s.bold("outboxd demo") + "\n")
	s.write(fmt.Sprintf(introduction, downstream, daemon))
	if s.term != nil {
		s.draw()
		return
	}
	for _, story := range s.stories {
		s.write(fmt.Sprintf("  %s  %-7s  %s\n", story.key, story.tool, story.plot))
	}
	s.write("\n")
}

// update shows what has changed.
func (s *screen) update(rows []row) {
	if slices.Equal(rows, s.rows) {
		return
	}
	before := s.rows
	s.rows = rows
	if s.term != nil {
		s.draw()
		return
	}
	for i, r := range rows {
		if r != before[i] {
			s.line(fmt.Sprintf("%s  %-7s  %-11s  %s, %s", s.stories[i].key, s.stories[i].tool, r.status,
				count(r.attempts, "attempt"), count(r.effects, "effect")))
		}
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// line is one that says when it happened.
func (s *screen) line(text string) {
	s.write(fmt.Sprintf("%5.1f s  %s\n", time.Since(s.began).Seconds(), text))
}

// say tells what happened, above the table.
func (s *screen) say(format string, args ...any) {
	drawn := s.drawn > 0
	s.erase()
	s.line(fmt.Sprintf(format, args...))
	if drawn {
		s.draw()
	}
}

// quote shows another program's words.
func (s *screen) quote(text string) {
	for line := range strings.Lines(text) {
		s.write("  | " + strings.TrimRight(line, "\r\n") + "\n")
	}
}

// draw puts the table in the place of the one that stands there.
func (s *screen) draw() {
	lines := s.table()
	s.erase()
	if width, _, err := term.GetSize(int(s.term.Fd())); err == nil {
		for i := range lines {
			lines[i] = fit(lines[i], width-1)
		}
	}
	s.write(strings.Join(lines, "\n") + "\n")
	s.drawn = len(lines)
}

func (s *screen) erase() {
	if s.drawn > 0 {
		s.write(fmt.Sprintf("\x1b[%dA\x1b[J", s.drawn))
		s.drawn = 0
	}
}

// table is the live table: a blank line, its head, and a line for each story.
func (s *screen) table() []string {
	g := grid{head: []string{"operation", "tool", "what happens", "status", "attempts", "effects"}}
	for i, story := range s.stories {
		r := s.rows[i]
		g.add(plain(story.key), plain(story.tool), plain(story.plot),
			s.status(r.status), plain(fmt.Sprint(r.attempts)), plain(fmt.Sprint(r.effects)))
	}
	return append([]string{""}, g.lines(s)...)
}

// verdict shows every check and returns how many were not met.
func (s *screen) verdict(checks []check) (wrong int) {
	s.drawn = 0 // the table stays as it is
	s.write("\n" + s.bold("Expected and found") + "\n\n")
	g := grid{head: []string{"", "of", "what", "expected", "found"}}
	last := ""
	for _, c := range checks {
		mark := cell{"ok", green}
		if !c.met() {
			mark = cell{"WRONG", red}
			wrong++
		}
		about := c.About
		if about == last {
			about = ""
		}
		last = c.About
		g.add(mark, plain(about), plain(c.What), plain(c.Want), plain(c.Got))
	}
	s.write(strings.Join(g.lines(s), "\n") + "\n")
	return wrong
}

// end says what was to be seen, and that all went well.
func (s *screen) end(format string, args ...any) {
	s.write("\n" + s.bold("What you saw") + "\n\n")
	for _, story := range s.stories {
		s.write(hang(story.key+"  ", story.moral))
	}
	s.write(hang("token    ", "A number that comes with each attempt and only rises: by it the downstream can turn away one that comes too late."))
	s.write(hang("audit    ", "Outboxd computes everything in its file again: states, digests, proofs."))
	s.write("\n" + s.paint(cell{fmt.Sprintf(format, args...), green}) + "\n")
}

func (s *screen) kept(at place) {
	s.write(fmt.Sprintf("\nKept: %s\nLook at it with: outboxd list --config %s\n", at.dir, at.config()))
}

func (s *screen) bad(format string, args ...any) {
	s.write("\n" + s.paint(cell{fmt.Sprintf(format, args...), red}) + "\n")
}
