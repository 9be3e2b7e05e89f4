package api

// Statements are the ones whose plans are tested.
var Statements = map[string]string{
	"status": statusSQL, "kept": keptSQL, "live": liveSQL, "tool": toolSQL, "order": orderSQL,
	"scope": scopeSQL, "key": keySQL, "refused": refusedSQL, "attempts": attemptsSQL,
}

// ProblemOf is what a caller is told of an error.
var ProblemOf = problemOf

// Fail answers a request with an error.
var Fail = (*API).fail
