//go:build !race

package ledger_test

const (
	raceDetector = false
	foreignTimes = 200 // transactions of another process
)
