// Package ledgertest opens real files for tests and audits each of them when
// its test ends: whatever a test did, the file must be one that an audit finds
// nothing in.
package ledgertest

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/outboxd/outboxd/audit"
	"github.com/outboxd/outboxd/ledger"
)

// Open opens a new file in a directory of the test's own.
func Open(t testing.TB, o ...ledger.Options) *ledger.Ledger {
	t.Helper()
	return OpenAt(t, filepath.Join(t.TempDir(), "outbox.db"), o...)
}

// OpenAt opens the file at path and creates it where it is missing. When the
// test ends the file is audited and closed; a test may close it before that.
func OpenAt(t testing.TB, path string, o ...ledger.Options) *ledger.Ledger {
	t.Helper()
	var options ledger.Options
	if len(o) > 0 {
		options = o[0]
	}
	options.Create = true
	l, err := ledger.Open(context.Background(), path, options)
	if err != nil {
		t.Fatalf("open ledger: %v", err)
	}
	t.Cleanup(func() { finish(t, l) })
	return l
}

// finish leaves alone what a test took away from the ledger, and audits the
// rest.
func finish(t testing.TB, l *ledger.Ledger) {
	t.Helper()
	report, err := audit.Run(context.Background(), l)
	switch {
	case errors.Is(err, ledger.ErrClosed):
		auditClosed(t, l.Path())
		return
	case err == nil:
		complain(t, report)
	case l.Err() == nil:
		t.Errorf("audit at the end of the test: %v", err)
	}
	if err := l.Close(); err != nil && l.Err() == nil {
		t.Errorf("close ledger: %v", err)
	}
}

func auditClosed(t testing.TB, path string) {
	t.Helper()
	l, err := ledger.Open(context.Background(), path, ledger.Options{ReadOnly: true})
	if errors.Is(err, ledger.ErrNotFound) {
		return
	}
	if err != nil {
		t.Errorf("open closed ledger for the audit: %v", err)
		return
	}
	Audit(t, l)
	if err := l.Close(); err != nil {
		t.Errorf("close ledger: %v", err)
	}
}

// Audit fails the test for every finding in the file.
func Audit(t testing.TB, l *ledger.Ledger) {
	t.Helper()
	report, err := audit.Run(context.Background(), l)
	if err != nil {
		t.Errorf("audit: %v", err)
		return
	}
	complain(t, report)
}

func complain(t testing.TB, report *audit.Report) {
	t.Helper()
	for _, f := range report.Findings {
		t.Errorf("audit: %s %s: %s", f.Code, f.StatusRef, f.What)
	}
	if n := report.Total - len(report.Findings); n > 0 {
		t.Errorf("audit: and %d findings more", n)
	}
}

// Write runs fn in a transaction and fails the test at its error.
func Write(t testing.TB, l *ledger.Ledger, fn func(*ledger.Tx) error) {
	t.Helper()
	if err := l.Write(context.Background(), fn); err != nil {
		t.Fatalf("write: %v", err)
	}
}

// Read runs fn on a snapshot and fails the test at its error.
func Read(t testing.TB, l *ledger.Ledger, fn func(*ledger.View) error) {
	t.Helper()
	if err := l.Read(context.Background(), fn); err != nil {
		t.Fatalf("read: %v", err)
	}
}
