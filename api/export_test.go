package api

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

// Statements are the ones whose plans are tested.
var Statements = map[string]string{
	"status": statusSQL, "kept": keptSQL, "live": liveSQL, "tool": toolSQL, "order": orderSQL,
	"scope": scopeSQL, "key": keySQL, "refused": refusedSQL, "attempts": attemptsSQL,
}

// ProblemOf is what a caller is told of an error.
var ProblemOf = problemOf

// Fail answers a request with an error.
var Fail = (*API).fail

// Waiting reports whether somebody waits for the operation.
func (s *API) Waiting(ref string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.refs[ref]) > 0
}

// MaxPerUID is how many connections one uid may have.
const MaxPerUID = maxPerUID

// Enter counts a connection of a uid, where there is room for it.
func Enter(l net.Listener, uid int) bool { return l.(*listener).enter(uid) }

// Hurry shortens how long callers wait and read, and how long their bytes may take.
func (s *API) Hurry(accept, transfer time.Duration) { s.limits = limits{accept, accept, transfer} }

// Occupy takes the place of a uid among those who read many rows.
func (s *API) Occupy(ctx context.Context, uid int) (leave func(), err error) {
	return s.scans.take(ctx, uid)
}

// OccupyAudit takes the place of the one audit.
func (s *API) OccupyAudit(ctx context.Context) (leave func(), err error) {
	return s.audits.take(ctx, 0)
}

// Scan reads as a list does.
func (s *API) Scan(r *http.Request, fn func(*ledger.View) error) error {
	return s.scan(&call{Request: r}, fn)
}

// WithPeer is a request's context of this uid.
func WithPeer(ctx context.Context, uid int) context.Context { return withPeer(ctx, peer{UID: uid}) }
