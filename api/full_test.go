package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// The ledger looks for the batch itself: the caller needs no cut connection to
// know that it is to ask again.
func TestCommitThatIsStillLookedForIsAnsweredAsADiskFull(t *testing.T) {
	w := newWorld(t, script{})
	for _, err := range []error{ledger.ErrCommitUnknown, errors.Join(ledger.ErrCommitUnknown, context.DeadlineExceeded)} {
		answer := httptest.NewRecorder()
		api.Fail(w.api, answer, httptest.NewRequest("POST", "/v1/operations", nil), fmt.Errorf("accept: %w", err))
		if text := answer.Body.String(); answer.Code != 507 || !strings.Contains(text, "DISK_FULL") || !strings.Contains(text, "not known yet") {
			t.Errorf("%v: got %d %s, want 507 DISK_FULL, not known yet", err, answer.Code, text)
		}
	}
}

func TestSubmitThatMeetsAFullDiskAtItsCommitIsAnswered(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("NOT TESTED: a full file system: cannot mount one: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	w := newWorldOn(t, script{}, ledgertest.OpenAt(t, filepath.Join(dir, "outbox.db")))
	w.api.Hurry(300*time.Millisecond, time.Minute)
	w.accept(opaque, "before")

	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	body := aCase(opaque, "order-1")
	body.Call.Arguments = fmt.Appendf(nil, `{"note":"%s"}`, bytes.Repeat([]byte("x"), 60000))
	_, err := w.client.Submit(context.Background(), body, 0)
	p := refused(t, "submit on a full disk", err, 507, "DISK_FULL")
	if !strings.Contains(p.Detail, "not known yet") || !strings.Contains(p.Detail, "same key") {
		t.Errorf("detail is %q", p.Detail)
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	w.until("the disk takes writes again", func() bool {
		a, err := w.client.Submit(context.Background(), body, 0)
		return err == nil && a.Gate == api.Pass
	})
	if n := w.count(); n != 2 {
		t.Errorf("%d operations, want 2", n)
	}
}
