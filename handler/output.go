package handler

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"
)

// maxLine bounds the last line of a program's output, in bytes: a result of
// MaxResult with room for what stands around it.
const maxLine = 2 * MaxResult

// output keeps the end of what a program prints, however much it prints.
// Its fields belong to the collecting goroutine until done is closed.
type output struct {
	r    *os.File
	buf  []byte
	cut  bool // buf is not all of it
	eof  bool // everybody who could write has ended
	done chan struct{}
}

// collect reads r to its end; the caller waits by finish.
func collect(r *os.File) *output {
	o := &output{r: r, done: make(chan struct{})}
	go o.read()
	return o
}

func (o *output) read() {
	defer close(o.done)
	chunk := make([]byte, 32<<10)
	for {
		n, err := o.r.Read(chunk)
		o.keep(chunk[:n])
		if err != nil {
			o.eof = errors.Is(err, io.EOF)
			return
		}
	}
}

func (o *output) keep(p []byte) {
	o.buf = append(o.buf, p...)
	if len(o.buf) <= 2*maxLine {
		return
	}
	o.cut = true
	o.buf = o.buf[:copy(o.buf, o.buf[len(o.buf)-maxLine:])]
}

// finish reads until the given time at the latest, closes the pipe and reports
// whether all who could write had ended.
func (o *output) finish(last time.Time) bool {
	_ = o.r.SetReadDeadline(last) // fails only on a closed file
	<-o.done
	_ = o.r.Close()
	return o.eof
}

// lastLine is the last line that is not blank, and whether its beginning is
// missing.
func (o *output) lastLine() (line []byte, headless bool) {
	text := bytes.TrimSpace(o.buf)
	at := bytes.LastIndexByte(text, '\n')
	return bytes.TrimSpace(text[at+1:]), at < 0 && o.cut
}

// excerpt is a program's own reason, else the end of its standard error, else
// of its standard output.
func (e ending) excerpt(hide redactor, reason string, ours []byte) string {
	switch {
	case reason != "":
		return hide.head([]byte(reason), ours)
	case len(bytes.TrimSpace(e.err.buf)) > 0:
		return e.err.excerpt(hide, ours)
	}
	return e.out.excerpt(hide, ours)
}

func (o *output) excerpt(hide redactor, ours []byte) string {
	return hide.tail(o.buf, ours, o.cut)
}
