// Package disk says what a power cut may leave of files whose writes were
// recorded.
//
// It decides which states are possible: what was synced is there; of what was
// written since, each write may be there, be missing, be torn at sectors, or have
// left garbage in the sectors that it touched; names in the directory likewise. It
// is conservative: a write counts from its call, a sync covers only what was
// complete before its call and counts from its return. It does not know disks that
// lie about a sync, writes through a memory map (SQLite's index of the log, which
// is rebuilt) or renames, and refuses a record that has one.
//
// Whether a state is good is for the caller to say.
package disk

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// Kind of an Op.
type Kind int

// The kinds.
const (
	Write Kind = iota
	Truncate
	Create // a name in the directory
	Unlink
	Sync    // of a file
	SyncDir // of the directory
	Said    // something left the process: Data; it promises what it says
)

// Op is one recorded call, in the order of their effects.
type Op struct {
	Kind  Kind
	File  int // index of the file
	Off   int64
	Data  []byte
	Name  string
	Begun int // of a sync: how many ops were complete when it began
}

// State is what a power cut left, and what had been said by then.
type State struct {
	Files map[string][]byte
	Said  [][]byte
	At    int // after how many ops
	How   string
}

// file is one file: what is durable, and what was done since.
type file struct {
	durable []byte
	pending []pending
}

type pending struct {
	Op
	at int
}

// Disk replays a record.
type Disk struct {
	files   []*file
	names   map[string]int // durable
	entries []pending      // creates and unlinks since the last sync of the directory
	said    [][]byte
	at      int
	rnd     *rand.Rand
	seen    map[[32]byte]bool

	// WholeSectors: garbage fills the sectors that a write touches, also where it
	// wrote nothing; else only the bytes that it wrote.
	WholeSectors bool
}

// New is a disk with files that are durable; first are they in the order of the
// record's indexes.
func New(rec Record, seed uint64) *Disk {
	d := &Disk{names: map[string]int{}, rnd: rand.New(rand.NewPCG(seed, 7)), seen: map[[32]byte]bool{}, WholeSectors: true}
	for i, name := range rec.Names {
		f := &file{}
		if was, ok := rec.Before[name]; ok && slices.Index(rec.Names, name) == i {
			f.durable = was
			d.names[name] = i
		}
		d.files = append(d.files, f)
	}
	return d
}

// Do replays the next op.
func (d *Disk) Do(op Op) {
	p := pending{op, d.at}
	d.at++
	switch op.Kind {
	case Write, Truncate:
		d.files[op.File].pending = append(d.files[op.File].pending, p)
	case Create, Unlink:
		d.entries = append(d.entries, p)
	case Sync:
		f := d.files[op.File]
		f.pending = slices.DeleteFunc(f.pending, func(p pending) bool {
			if p.at >= op.Begun {
				return false
			}
			f.durable = kept.apply(f.durable, p.Op, 512, d)
			return true
		})
	case SyncDir:
		d.entries = slices.DeleteFunc(d.entries, func(p pending) bool {
			if p.at >= op.Begun {
				return false
			}
			enter(d.names, p.Op)
			return true
		})
	case Said:
		d.said = append(d.said, op.Data)
	}
}

func enter(names map[string]int, op Op) {
	if op.Kind == Create {
		names[op.Name] = op.File
		return
	}
	delete(names, op.Name)
}

// unsynced is how much may be lost now.
func (d *Disk) unsynced() int {
	n := len(d.entries)
	for _, f := range d.files {
		n += len(f.pending)
	}
	return n
}

// cut is one power cut: what becomes of the i-th of n writes of a file.
type cut struct {
	how    string
	fate   func(i, n int) fate
	names  int // how many of the entries survive; negative: all
	sector int
}

// build makes the state that a cut leaves; false: it was seen before.
func (d *Disk) build(c cut) (State, bool) {
	names := maps.Clone(d.names)
	survive := len(d.entries)
	if c.names >= 0 {
		survive = min(c.names, survive)
	}
	for _, p := range d.entries[:survive] {
		enter(names, p.Op)
	}
	s := State{Files: map[string][]byte{}, Said: d.said, At: d.at, How: c.how}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		f := d.files[names[name]]
		b := slices.Clone(f.durable)
		for i, p := range f.pending {
			b = c.fate(i, len(f.pending)).apply(b, p.Op, c.sector, d)
		}
		s.Files[name] = b
		_, _ = fmt.Fprintf(sum, "%s %d %d\n", name, len(b), len(d.said)) // a hash takes everything
		_, _ = sum.Write(b)
	}
	key := [32]byte(sum.Sum(nil))
	if d.seen[key] {
		return s, false
	}
	d.seen[key] = true
	return s, true
}

// Prefix is the state that a SIGKILL leaves now: nothing is lost but what was not
// written yet.
func (d *Disk) Prefix() (State, bool) {
	return d.build(cut{"a prefix of the calls", always(kept), -1, 512})
}

// Cuts are the states that a power cut may leave now, those that every disk
// allows and n random ones, without those that were given before.
func (d *Disk) Cuts(n int) (states []State) {
	take := func(c cut) {
		if s, ok := d.build(c); ok {
			states = append(states, s)
		}
	}
	take(cut{"all dropped", always(dropped), 0, 512})
	if d.unsynced() == 0 {
		return states
	}
	take(cut{"all kept", always(kept), -1, 512})
	take(cut{"the last dropped", func(i, n int) fate { return pick(i == n-1, dropped, kept) }, -1, 512})
	take(cut{"only the last", func(i, n int) fate { return pick(i == n-1, kept, dropped) }, -1, 512})
	take(cut{"the last garbled", func(i, n int) fate { return pick(i == n-1, garbled, kept) }, -1, 4096})
	for range n {
		worst := fate(2 + d.rnd.IntN(3)) // whole writes, torn ones too, garbage too
		take(cut{
			fmt.Sprintf("random up to %d", worst), func(int, int) fate { return fate(d.rnd.IntN(int(worst))) },
			d.rnd.IntN(len(d.entries) + 1), []int{512, 4096}[d.rnd.IntN(2)],
		})
	}
	return states
}

func always(f fate) func(int, int) fate { return func(int, int) fate { return f } }

func pick(yes bool, a, b fate) fate {
	if yes {
		return a
	}
	return b
}

// Describe is the ops around a state, for a report.
func Describe(rec Record, at int) string {
	var b strings.Builder
	for i := max(0, at-12); i < min(len(rec.Ops), at+2); i++ {
		op := rec.Ops[i]
		name := op.Name
		if op.Kind == Write || op.Kind == Truncate || op.Kind == Sync {
			name = rec.Names[op.File]
		}
		_, _ = fmt.Fprintf(&b, "%d %s %s at %d, %d bytes\n", i, [...]string{"write", "truncate", "create", "unlink", "sync", "sync directory", "said"}[op.Kind],
			name, op.Off, len(op.Data)) // a builder takes everything
	}
	return b.String()
}
