package config

import (
	"flag"
	"testing"
)

// Update has the golden files, the reference and the schema written.
var Update = flag.Bool("update", false, "write the golden files, the reference and the schema")

// OfferAll has every key of the format offered while a test runs: what is wrong in
// one must be told as it will be.
func OfferAll(tb testing.TB) {
	kept := later
	later = nil
	tb.Cleanup(func() { later = kept })
}

// Later are the keys that are known and not offered.
func Later() []string { return later }
