//go:build !race

package ledger_test

const raceDetector = false
