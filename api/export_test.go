package api

import "time"

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

// Hurry shortens how long callers wait, and how long their bytes may take.
func (s *API) Hurry(accept, transfer time.Duration) { s.limits = limits{accept, transfer} }
