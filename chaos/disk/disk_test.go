package disk_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/chaos/disk"
)

// hex is a string as strace -xx prints it.
func hex(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, `\x%02x`, s[i])
	}
	return `"` + b.String() + `"`
}

func read(t *testing.T, rec *disk.Record, lines ...string) error {
	t.Helper()
	return rec.Read(strings.NewReader(strings.Join(lines, "\n")+"\n"), "/d", "db", func(b []byte) bool { return strings.HasPrefix(string(b), "ACK") })
}

// trace writes to the log of a database, syncs it, and says so.
func trace() []string {
	return []string{
		`7 openat(AT_FDCWD, ` + hex("/d/db") + `, O_RDWR|O_CREAT, 0600) = 3`,
		`7 openat(AT_FDCWD, ` + hex("/d/db-wal") + `, O_RDWR|O_CREAT, 0600) = 4`,
		`7 openat(AT_FDCWD, ` + hex("/d") + `, O_RDONLY) = 5`,
		`7 fsync(5) = 0`,
		`7 pwrite64(4, ` + hex("one") + `, 3, 0) = 3`,
		`7 fsync(4 <unfinished ...>`,
		`8 pwrite64(4, ` + hex("two") + `, 3, 3) = 3`,
		`7 <... fsync resumed>) = 0`,
		`9 write(6, ` + hex("ACK 1") + `, 5) = 5`,
		`9 write(2, ` + hex("a log line") + `, 10) = 10`,
		`7 fdatasync(4) = 0`,
	}
}

// states are all states of a record at its end, or where it is cut.
func states(rec disk.Record, upTo int) (list []disk.State) {
	d := disk.New(rec, 1)
	for _, op := range rec.Ops[:upTo] {
		d.Do(op)
	}
	return d.Cuts(50)
}

func TestWhatWasSyncedIsThere(t *testing.T) {
	rec := disk.Record{Before: map[string][]byte{"db": []byte("head")}}
	if err := read(t, &rec, trace()...); err != nil {
		t.Fatal(err)
	}
	for _, s := range states(rec, len(rec.Ops)) {
		if got := string(s.Files["db-wal"]); got != "onetwo" || string(s.Files["db"]) != "head" {
			t.Errorf("%s: the log is %q, the file %q", s.How, got, s.Files["db"])
		}
		if len(s.Said) != 1 || string(s.Said[0]) != "ACK 1" {
			t.Errorf("%s: said %q", s.How, s.Said)
		}
	}
}

// TestASyncCoversWhatWasWrittenBeforeIt: a write during a sync may be lost, one
// before it may not.
func TestASyncCoversWhatWasWrittenBeforeIt(t *testing.T) {
	var rec disk.Record
	if err := read(t, &rec, trace()[:9]...); err != nil {
		t.Fatal(err)
	}
	lost, kept, garbage := 0, 0, 0
	for _, s := range states(rec, len(rec.Ops)) {
		switch log := string(s.Files["db-wal"]); {
		case log == "one":
			lost++
		case log == "onetwo":
			kept++
		case len(log) >= 512: // whole sectors: also over what was synced
			garbage++
		case !strings.HasPrefix(log, "one"):
			t.Errorf("%s: the log is %q: a synced write is gone", s.How, log)
		}
	}
	if lost == 0 || kept == 0 || garbage == 0 {
		t.Errorf("%d states without the second write, %d with it, %d with garbage: each must occur", lost, kept, garbage)
	}
}

func TestANameThatWasNotSyncedMayBeGone(t *testing.T) {
	var rec disk.Record
	if err := read(t, &rec, append(trace()[:3], trace()[4], `7 fsync(4) = 0`)...); err != nil {
		t.Fatal(err)
	}
	gone := 0
	for _, s := range states(rec, len(rec.Ops)) {
		if _, there := s.Files["db-wal"]; !there {
			gone++
		}
	}
	if gone == 0 {
		t.Error("the name of a new file is there in every state, though its directory was not synced")
	}
}

// TestASecondProcessGoesOnWhereTheFirstWasKilled: what the first wrote and did
// not sync may still be lost.
func TestASecondProcessGoesOnWhereTheFirstWasKilled(t *testing.T) {
	var rec disk.Record
	if err := read(t, &rec, trace()[:5]...); err != nil {
		t.Fatal(err)
	}
	if err := read(t, &rec, `9 openat(AT_FDCWD, `+hex("/d/db-wal")+`, O_RDWR, 0600) = 3`, `9 write(8, `+hex("ACK 2")+`, 5) = 5`); err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, s := range states(rec, len(rec.Ops)) {
		if len(s.Files["db-wal"]) == 0 && len(s.Said) == 1 {
			lost++
		}
	}
	if lost == 0 {
		t.Error("a write of the first process is there in every state, though nobody synced it")
	}
}

func TestAKillLosesNothingThatWasWritten(t *testing.T) {
	var rec disk.Record
	if err := read(t, &rec, trace()[:5]...); err != nil {
		t.Fatal(err)
	}
	d := disk.New(rec, 1)
	for _, op := range rec.Ops {
		d.Do(op)
	}
	if s, ok := d.Prefix(); !ok || string(s.Files["db-wal"]) != "one" {
		t.Errorf("got %q, %t", s.Files["db-wal"], ok)
	}
	if _, ok := d.Prefix(); ok {
		t.Error("the same state was given twice")
	}
}

func TestACallThatIsNotModelledIsRefused(t *testing.T) {
	for _, line := range []string{
		`7 write(4, ` + hex("x") + `, 1) = 1`,
		`7 pwritev(4, [], 1, 0) = 1`,
		`7 rename(` + hex("/d/db-tmp") + `, ` + hex("/d/db") + `) = 0`,
	} {
		var rec disk.Record
		if err := read(t, &rec, append(trace()[:3], line)...); !errors.Is(err, disk.ErrNotModelled) {
			t.Errorf("%s: got %v, want ErrNotModelled", line, err)
		}
	}
}
