package fencing_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/outboxd/outboxd/fencing"
	"pgregory.net/rapid"
)

func TestNext(t *testing.T) {
	now := time.UnixMicro(1_700_000_000_000_000)
	tests := []struct {
		name          string
		last, ceiling int64
		now           time.Time
		want          int64
		err           error
	}{
		{"follows the clock", 5, 9, now, 1_700_000_000_000_001, nil},
		{"follows the last token where the clock is behind", 1_800_000_000_000_000, 9, now, 1_800_000_000_000_001, nil},
		{"follows the ceiling of a restored file", 5, 1_900_000_000_000_000, now, 1_900_000_000_000_001, nil},
		{"two in one microsecond", 1_700_000_000_000_001, 0, now, 1_700_000_000_000_002, nil},
		{"clock before 1970", 0, 0, time.Unix(-1e9, 0), 1, nil},
		{"clock far ahead is ignored", 77, 0, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), 78, nil},
		{"clock beyond microseconds is ignored", 77, 0, time.Unix(math.MaxInt64/2, 0), 78, nil},
		{"clock before microseconds is ignored", 77, 0, time.Unix(math.MinInt64/2, 0), 78, nil},
		{"zero time is ignored", 77, 0, time.Time{}, 78, nil},
		{"negative input", -8, math.MinInt64, time.Unix(-1, 0), 1, nil},
		{"the largest", fencing.MaxToken - 1, 0, now, fencing.MaxToken, nil},
		{"last is the largest", fencing.MaxToken, 0, now, 0, fencing.ErrExhausted},
		{"ceiling is beyond the largest", 0, math.MaxInt64, now, 0, fencing.ErrExhausted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := fencing.Next(tt.last, tt.ceiling, tt.now)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("Next(%d, %d, %v) = %d, %v, want %d, %v", tt.last, tt.ceiling, tt.now, got, err, tt.want, tt.err)
			}
		})
	}
}

func TestTokensRiseWhateverTheClockDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last := rapid.Int64Range(0, fencing.MaxToken-1000).Draw(t, "first")
		for range 50 {
			ceiling := rapid.Int64Range(0, last+10).Draw(t, "ceiling")
			now := time.UnixMicro(rapid.Int64().Draw(t, "now"))
			next, err := fencing.Next(last, ceiling, now)
			if err != nil || next <= last || next <= ceiling || next > fencing.MaxToken {
				t.Fatalf("Next(%d, %d, %v) = %d, %v, want above both and at most %d", last, ceiling, now, next, err, int64(fencing.MaxToken))
			}
			last = next
		}
	})
}
