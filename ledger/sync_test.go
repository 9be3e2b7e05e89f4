package ledger_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

// traced is how to run a command under strace, or the test is skipped.
func traced(t *testing.T, args ...string) []string {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("NOT TESTED: what is synced when: there is no strace here")
	}
	if out, err := exec.Command("strace", "-o", "/dev/null", "true").CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: what is synced when: strace does not work here: %v: %s", err, out)
	}
	return append([]string{"strace", "-f", "-y", "-qq"}, args...)
}

// opened is looked for by a process once Open has returned.
const opened = "/outboxd-test-opened"

func openOnce(path string) error {
	l, err := ledger.Open(context.Background(), path, ledger.Options{})
	if err != nil {
		return err
	}
	_, _ = os.Stat(opened)
	return l.Close()
}

// Open has made durable what stands in the log: its own record, and with it
// everything before.
func TestOpenSyncsTheBootRecord(t *testing.T) {
	path := fresh(t, ledger.Options{}).Path() // open, so that the log is kept
	trace := filepath.Join(t.TempDir(), "trace")
	p := start(t, "open", path, traced(t, "-o", trace, "-e", "trace=pwrite64,fsync,fdatasync,stat,newfstatat,statx")...)
	if line := p.line(); line != "" {
		t.Fatalf("the other process said %q", line)
	}
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	// With psow=0 the last write follows the sync: the rest of a copy of the
	// commit's frame, which fills the sector that a power cut may garble.
	written, synced, done := 0, 0, false
	for lines := bufio.NewScanner(f); lines.Scan() && !done; {
		line := lines.Text()
		switch {
		case strings.Contains(line, opened):
			done = true
		case strings.Contains(line, "pwrite64(") && strings.Contains(line, "outbox.db-wal"):
			written++
		case written > 0 && regexp.MustCompile(`f(data)?sync\(`).MatchString(line) && strings.Contains(line, "outbox.db-wal"):
			synced++
		}
	}
	if !done || written == 0 || synced == 0 {
		t.Errorf("before Open returned (seen: %v): %d writes to the log, %d syncs after one, want at least one of each", done, written, synced)
	}
}

// failSync writes until a sync fails, and says what became of it.
func failSync(path string) error {
	l, err := ledger.Open(context.Background(), path, ledger.Options{})
	if err != nil {
		return err
	}
	for k := 1; ; k++ {
		err := l.Write(context.Background(), insert(k, ""))
		if err == nil {
			fmt.Println("acked", k)
			continue
		}
		<-l.Dead()
		after := l.Write(context.Background(), insert(k+1, ""))
		if !errors.Is(err, ledger.ErrCommitUnknown) || !errors.Is(after, ledger.ErrCommitUnknown) || ledger.Code(l.Err()) != "COMMIT_UNKNOWN" {
			return fmt.Errorf("got %w, then %w, ledger %w", err, after, l.Err())
		}
		fmt.Println("unknown")
		waitInput() // to be killed
		return nil
	}
}

// A sync that fails is never tried again: nobody is answered, and the next start
// copies everything before it answers.
func TestFailedSyncEndsTheLedger(t *testing.T) {
	l := fresh(t, ledger.Options{})
	path := l.Path()
	p := start(t, "sync", path, traced(t, "-o", "/dev/null", "-e", "trace=fsync,fdatasync",
		"-e", "inject=fsync,fdatasync:error=EIO:when=6+")...)
	acked := map[int]bool{}
	line := p.line()
	for ; strings.HasPrefix(line, "acked "); line = p.line() {
		var k int
		if _, err := fmt.Sscanf(line, "acked %d", &k); err != nil {
			t.Fatal(err)
		}
		acked[k] = true
	}
	if line != "unknown" || len(acked) == 0 {
		t.Fatalf("the other process said %q after %d rows, want unknown after some", line, len(acked))
	}
	p.goOn()
	p.line()
	next := reopen(t, path, ledger.Options{Complete: true})
	got := keys(t, path)
	for k := range acked {
		if !got[k] {
			t.Errorf("row %d was acknowledged and is missing", k)
		}
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}

// completeBroken opens a file whose log must be copied, and says what it was told.
func completeBroken(path string) error {
	_, err := ledger.Open(context.Background(), path, ledger.Options{Complete: true})
	fmt.Printf("code %s, broken %v\n", ledger.Code(err), ledger.Broken(err))
	return nil
}

// An input/output error is not taken for a lock, and is told at once.
func TestAnErrorWhileTheLogIsCopiedAtTheStart(t *testing.T) {
	l := fresh(t, ledger.Options{})
	mustWrite(t, l, insert(1, ""))
	p := start(t, "complete", l.Path(), traced(t, "-o", "/dev/null", "-e", "trace=fsync,fdatasync",
		"-e", "inject=fsync,fdatasync:error=EIO:when=2+")...)
	p.wants("code SQLITE_ERROR, broken true")
}

func TestCopyingTheLogEndsWithItsContext(t *testing.T) {
	l := fresh(t, ledger.Options{})
	err := l.Read(t.Context(), func(v *ledger.View) error {
		if err := v.One(`SELECT count(*) FROM note`).Scan(new(int)); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := ledger.Open(ctx, l.Path(), ledger.Options{Complete: true, Busy: time.Hour})
		if !errors.Is(err, ledger.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beside a reader: got %v, want %v and %v", err, ledger.ErrBusy, context.DeadlineExceeded)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
