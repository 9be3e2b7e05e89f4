package ledger_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

// load writes closures from 64 callers, each with bytes of payload, and returns
// how long the log ever was.
func load(t *testing.T, l *ledger.Ledger, closures, bytes int) (longest int64) {
	var writers sync.WaitGroup
	var mu sync.Mutex
	v := payload(bytes)
	for range 64 {
		writers.Go(func() {
			for range closures / 64 {
				err := l.Write(context.Background(), func(tx *ledger.Tx) error {
					_, err := tx.Exec(`INSERT INTO note (v) VALUES (?)`, v)
					return err
				})
				if err != nil {
					t.Errorf("write: %v", err)
					return
				}
			}
			mu.Lock()
			longest = max(longest, l.Health().WALBytes)
			mu.Unlock()
		})
	}
	writers.Wait()
	return longest
}

// The log starts again under load, and is given back when there is none. Inside
// a bubble the gaps and rests between commits take no time.
func TestLogStaysBounded(t *testing.T) {
	closures := 50_000
	if raceDetector {
		closures = 5_000
	}
	synctest.Test(t, func(t *testing.T) {
		l := fresh(t, ledger.Options{})
		longest := load(t, l, closures, 1000)
		t.Logf("%d closures: the log was %d KiB at most", closures, longest>>10)
		if longest > 40<<20 {
			t.Errorf("the log grew to %d MiB", longest>>20)
		}
		<-time.After(10 * time.Second)
		if left := l.Health().WALBytes; left != 0 {
			t.Errorf("%d bytes of log are left after a rest", left)
		}
		if err := l.Health().Checkpoint; err != nil {
			t.Errorf("health says %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A reader that stays keeps the log growing and nothing else; after it has gone
// the log shrinks without a new start.
func TestPinnedReaderIsOnlyALongLog(t *testing.T) {
	const closures = 3_200
	synctest.Test(t, func(t *testing.T) {
		l := fresh(t, ledger.Options{})
		pinned, leave := make(chan struct{}), make(chan struct{})
		left := make(chan error, 1)
		go func() {
			left <- l.Read(context.Background(), func(v *ledger.View) error {
				err := v.One(`SELECT count(*) FROM note`).Scan(new(int))
				close(pinned)
				<-leave
				return err
			})
		}()
		<-pinned
		load(t, l, closures, 4000)
		<-time.After(time.Minute)
		if long := l.Health().WALBytes; long < closures*4000 {
			t.Errorf("the log has %d MiB beside a pinned reader, want all that was written", long>>20)
		}
		close(leave)
		if err := <-left; err != nil {
			t.Error(err)
		}
		<-time.After(time.Minute)
		if long := l.Health().WALBytes; long != 0 {
			t.Errorf("%d bytes of log a minute after the reader left", long)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The log is truncated when nothing is written, not every few seconds.
func TestLogIsNotTruncatedUnderALightLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fresh(t, ledger.Options{})
		for k := range 30 {
			mustWrite(t, l, insert(k+1, ""))
			<-time.After(time.Second)
			if l.Health().WALBytes == 0 {
				t.Fatalf("truncated between two writes, at second %d", k)
			}
		}
		<-time.After(10 * time.Second)
		if l.Health().WALBytes != 0 {
			t.Error("not truncated after ten idle seconds")
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}
