//go:build race

package ledger_test

// raceDetector: SQLite runs some twenty times slower.
const (
	raceDetector = true
	foreignTimes = 40
)
