package disk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Record is what processes did to the files of one directory whose names have a
// prefix, and what they said meanwhile.
type Record struct {
	Before map[string][]byte // the files as they were, durable
	Names  []string          // of the files, by index
	Ops    []Op
}

// Calls are the system calls that a trace must hold: `strace -f -xx -s 1048576 -e trace=Calls`.
const Calls = "open,openat,creat,close,pwrite64,pwritev,pwritev2,write,writev,sendto,fsync,fdatasync,ftruncate,unlink,unlinkat," +
	"rename,renameat,renameat2,fallocate,sync_file_range,dup,dup2,dup3,fcntl"

// ErrNotModelled says that a trace holds what this package cannot replay.
var ErrNotModelled = errors.New("a call that is not modelled")

// recorder reads one process's trace after another.
type recorder struct {
	rec    *Record
	dir    string
	prefix string
	says   func([]byte) bool // what is worth keeping of what left the process
	fds    map[int64]int     // index of the file; -1: the directory
	open   map[string]call   // by thread: calls that have not returned
	byName map[string]int
}

// call is one that has begun.
type call struct {
	text  string
	begun int
}

// Read appends a trace of a process to the record. A later process begins with no
// descriptor; what an earlier one wrote and did not sync is still not synced.
func (rec *Record) Read(trace io.Reader, dir, prefix string, says func([]byte) bool) error {
	r := &recorder{rec: rec, dir: filepath.Clean(dir), prefix: prefix, says: says,
		fds: map[int64]int{}, open: map[string]call{}, byName: map[string]int{}}
	r.restore()
	lines := bufio.NewScanner(trace)
	lines.Buffer(make([]byte, 1<<20), 64<<20)
	for lines.Scan() {
		if err := r.line(lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// restore finds the names as the ops so far left them.
func (r *recorder) restore() {
	for name := range r.rec.Before {
		r.index(name)
	}
	for _, op := range r.rec.Ops {
		switch op.Kind {
		case Create:
			r.byName[op.Name] = op.File
		case Unlink:
			delete(r.byName, op.Name)
		}
	}
}

// index is the file that stood there before.
func (r *recorder) index(name string) {
	i := slices.Index(r.rec.Names, name)
	if i < 0 {
		i = len(r.rec.Names)
		r.rec.Names = append(r.rec.Names, name)
	}
	r.byName[name] = i
}

var (
	threadLine = regexp.MustCompile(`^(\d+)\s+(.*)$`)
	resumed    = regexp.MustCompile(`^<\.\.\. \w+ resumed>(.*)$`)
)

func (r *recorder) line(text string) error {
	m := threadLine.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	thread, c := m[1], call{m[2], len(r.rec.Ops)}
	if head, ok := strings.CutSuffix(c.text, "<unfinished ...>"); ok {
		c.text = strings.TrimRight(head, " ")
		r.open[thread] = c
		return r.begins(c)
	}
	unfinished := false
	if tail := resumed.FindStringSubmatch(c.text); tail != nil {
		begun := r.open[thread]
		delete(r.open, thread)
		c, unfinished = call{begun.text + tail[1], begun.begun}, true
	}
	open, equals := strings.IndexByte(c.text, '('), strings.LastIndex(c.text, " = ")
	if open < 0 || equals < 0 {
		return nil
	}
	end := strings.LastIndexByte(c.text[:equals], ')')
	result, err := strconv.ParseInt(strings.Fields(c.text[equals+3:])[0], 0, 64)
	if err != nil || result < 0 || end < open {
		return nil
	}
	return r.done(c.text[:open], strings.Split(c.text[open+1:end], ", "), result, c.begun, unfinished)
}

// begins: a write counts from its call, though it may return later.
func (r *recorder) begins(c call) error {
	name, args, ok := strings.Cut(c.text, "(")
	if !ok || name != "pwrite64" && name != "write" && name != "sendto" {
		return nil
	}
	a := strings.Split(args, ", ")
	if len(a) < 3 {
		return nil
	}
	return r.wrote(name, a, -1)
}

func (r *recorder) done(name string, a []string, result int64, begun int, unfinished bool) error {
	fd := number(a, 0)
	file, tracked := r.fds[fd]
	switch name {
	case "open", "openat", "creat":
		return r.opened(a, result)
	case "close":
		delete(r.fds, fd)
	case "pwrite64", "write", "sendto":
		if !unfinished {
			return r.wrote(name, a, result)
		}
	case "fsync", "fdatasync":
		switch {
		case tracked && file < 0:
			r.add(Op{Kind: SyncDir, Begun: begun})
		case tracked:
			r.add(Op{Kind: Sync, File: file, Begun: begun})
		}
	case "ftruncate":
		if tracked {
			r.add(Op{Kind: Truncate, File: file, Off: number(a, 1)})
		}
	case "unlink", "unlinkat":
		if base, ours := r.ours(a); ours {
			r.add(Op{Kind: Unlink, Name: base})
			delete(r.byName, base)
		}
	case "pwritev", "pwritev2", "fallocate", "dup", "dup2", "dup3", "writev":
		if tracked {
			return fmt.Errorf("%w: %s", ErrNotModelled, name)
		}
	case "rename", "renameat", "renameat2":
		for i := range a {
			if base := filepath.Base(text(a[i])); strings.HasPrefix(base, r.prefix) {
				return fmt.Errorf("%w: %s", ErrNotModelled, name)
			}
		}
	}
	return nil
}

func (r *recorder) add(op Op) { r.rec.Ops = append(r.rec.Ops, op) }

// wrote is a write to one of the files, or something that was said to the outside.
func (r *recorder) wrote(name string, a []string, result int64) error {
	file, tracked := r.fds[number(a, 0)]
	data := text(a[1])
	if result >= 0 && result < int64(len(data)) {
		data = data[:result]
	}
	switch {
	case tracked && name != "pwrite64":
		return fmt.Errorf("%w: %s to a file", ErrNotModelled, name)
	case tracked:
		r.add(Op{Kind: Write, File: file, Off: number(a, 3), Data: []byte(data)})
	case name != "pwrite64" && r.says([]byte(data)):
		r.add(Op{Kind: Said, Data: []byte(data)})
	}
	return nil
}

func (r *recorder) opened(a []string, fd int64) error {
	delete(r.fds, fd)
	for i := range a[:min(2, len(a))] {
		if filepath.Clean(text(a[i])) == r.dir {
			r.fds[fd] = -1
			return nil
		}
	}
	base, ours := r.ours(a)
	if !ours {
		return nil
	}
	i, known := r.byName[base]
	if !known {
		i = len(r.rec.Names)
		r.rec.Names = append(r.rec.Names, base)
		r.byName[base] = i
		r.add(Op{Kind: Create, File: i, Name: base})
	}
	if strings.Contains(strings.Join(a, " "), "O_TRUNC") {
		r.add(Op{Kind: Truncate, File: i})
	}
	r.fds[fd] = i
	return nil
}

// ours is the name of one of the files among the arguments.
func (r *recorder) ours(a []string) (string, bool) {
	for i := range a[:min(2, len(a))] {
		path := text(a[i])
		if base := filepath.Base(path); filepath.Dir(path) == r.dir && strings.HasPrefix(base, r.prefix) {
			return base, true
		}
	}
	return "", false
}

// text is a string as `strace -xx` prints it; other arguments are "".
func text(arg string) string {
	arg = strings.TrimSpace(arg)
	if !strings.HasPrefix(arg, `"`) {
		return ""
	}
	arg = strings.Trim(arg, `"`)
	out := make([]byte, 0, len(arg)/4)
	for i := 0; i+3 < len(arg); i += 4 {
		v, err := strconv.ParseUint(arg[i+2:i+4], 16, 8)
		if err != nil {
			return ""
		}
		out = append(out, byte(v))
	}
	return string(out)
}

func number(a []string, i int) int64 {
	if i >= len(a) {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSpace(a[i]), 0, 64)
	if err != nil {
		return -1
	}
	return n
}
