// Package fencing decides which fencing token comes next, and whether a token
// that arrives is still good. It knows no table of the daemon, so a downstream
// can import it.
//
// Next promises that tokens only rise, also after the clock was set back, and
// stay below 2^53, so that every JSON reader keeps them exact. Admit promises
// that, per key, no smaller token is admitted once a larger one was. Storing
// the last token issued is left to the ledger, sending it to the handlers.
package fencing

import (
	"errors"
	"time"
)

// MaxToken is the largest token there is: the largest integer that every JSON
// reader keeps exact (RFC 8259, 6).
const MaxToken = 1<<53 - 1

// saneClock is the first Unix second (in the year 2112) that tokens no longer
// follow: one broken clock must not use up what is left below 2^53.
const saneClock = 1 << 52 / 1_000_000

// ErrExhausted says that no token is left above the last one. It takes a
// damaged file to get there.
var ErrExhausted = errors.New("no fencing token is left")

// Next is the token that follows: one more than the largest of the last token
// of the file, the ceiling kept outside the file, and now in Unix microseconds.
// The clock takes part so that a restored older file does not issue its tokens
// again; a clock before 1970 or beyond 2112 is ignored.
func Next(last, ceiling int64, now time.Time) (int64, error) {
	token := max(last, ceiling, 0)
	if token >= MaxToken {
		return 0, ErrExhausted
	}
	if s := now.Unix(); s > 0 && s < saneClock { // outside, UnixMicro may overflow
		token = max(token, now.UnixMicro())
	}
	return token + 1, nil
}
