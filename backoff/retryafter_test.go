package backoff_test

import (
	"testing"
	"time"

	"github.com/outboxd/outboxd/backoff"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestRetryAfter(t *testing.T) {
	tests := []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"120", 2 * time.Minute, true},
		{"0", 0, true},
		{" \t120 ", 2 * time.Minute, true},
		{"0000000000000000000000090", 90 * time.Second, true},
		{"-5", 0, true},
		{"-99999999999999999999999", 0, true},
		{"99999999999999999999999", backoff.Limit, true},
		{"31536001", backoff.Limit, true},
		{"Sun, 01 Mar 2026 12:01:30 GMT", 90 * time.Second, true},
		{"Sunday, 01-Mar-26 12:01:30 GMT", 90 * time.Second, true},
		{"Sun Mar  1 12:01:30 2026", 90 * time.Second, true},
		{"Sun, 01 Mar 2026 11:00:00 GMT", 0, true},
		{"Fri, 31 Dec 9999 23:59:59 GMT", backoff.Limit, true},
		{"Mon, 01 Jan 0001 00:00:00 GMT", 0, true},
		{"Wednesday, 01-Jan-75 00:00:00 GMT", backoff.Limit, true},
		{"Friday, 01-Jan-99 00:00:00 GMT", 0, true},
		{"", 0, false},
		{"-", 0, false},
		{"+5", 0, false},
		{"1.5", 0, false},
		{"5 s", 0, false},
		{"0x10", 0, false},
		{"soon", 0, false},
		{"2026-03-01T12:01:30Z", 0, false},
		{"Sunday, 01-Mar-26 12:01:30 EST", 0, false},
		{"Sun, 01 Mar 2026 12:01:30 +0100", 0, false},
		{"١٢", 0, false},
	}
	for _, tt := range tests {
		got, ok := backoff.RetryAfter(tt.value, noon)
		if got != tt.want || ok != tt.ok {
			t.Errorf("RetryAfter(%q) = %v, %v, want %v, %v", tt.value, got, ok, tt.want, tt.ok)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{
		"120", "-1", "", "99999999999999999999", "Sun, 01 Mar 2026 12:01:30 GMT",
		"Sunday, 01-Mar-26 12:01:30 GMT", "Sun Mar  1 12:01:30 2026", "Sunday, 01-Mar-26 12:01:30 EST",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, ok := backoff.RetryAfter(value, noon)
		if got < 0 || got > backoff.Limit || !ok && got != 0 {
			t.Errorf("RetryAfter(%q) = %v, %v, want 0 to %v, and 0 if it says nothing", value, got, ok, backoff.Limit)
		}
	})
}
