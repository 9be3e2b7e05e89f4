package contract_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/contract"
)

func TestCheckKey(t *testing.T) {
	tests := []struct {
		name, key   string
		ok, missing bool
	}{
		{"plain", "order-17", true, false},
		{"one byte", "k", true, false},
		{"255 bytes", strings.Repeat("x", 255), true, false},
		{"number-like", "007", true, false},
		{"exponent-like", "1e3", true, false},
		{"space inside", "order 17", true, false},
		{"NFC", "caf\u00e9-3", true, false},
		{"NFD", "cafe\u0301-3", true, false},
		{"Cyrillic", "\u0430", true, false},
		{"emoji", "\U0001F642", true, false},
		{"replacement character", "\ufffd", true, false},
		{"empty", "", false, true},
		{"blank", " ", false, true},
		{"blank beyond ASCII", "\u3000\u00a0", false, true},
		{"256 bytes", strings.Repeat("x", 256), false, false},
		{"256 bytes in 128 characters", strings.Repeat("\u00e9", 128), false, false},
		{"leading space", " k", false, false},
		{"trailing space", "k ", false, false},
		{"trailing no-break space", "k\u00a0", false, false},
		{"trailing newline", "k\n", false, false},
		{"newline", "a\nb", false, false},
		{"tab", "a\tb", false, false},
		{"NUL", "a\x00b", false, false},
		{"DEL", "a\x7fb", false, false},
		{"C1", "a\u0085b", false, false},
		{"not UTF-8", "a\xff", false, false},
		{"encoded surrogate", "a\xed\xa0\x80", false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := contract.CheckKey(tt.key)
			if (err == nil) != tt.ok {
				t.Fatalf("CheckKey(%q) = %v, want accepted: %v", tt.key, err, tt.ok)
			}
			var wrong *contract.InputError
			if !tt.ok && (!errors.As(err, &wrong) || wrong.Path != "idempotency_key" || wrong.Missing != tt.missing) {
				t.Errorf("CheckKey(%q): %#v, want path idempotency_key, missing %v", tt.key, err, tt.missing)
			}
		})
	}
}

func TestCheckNameGivesItsKindAsPath(t *testing.T) {
	err := contract.CheckName("tenant", "a\nb")
	const want = "tenant: has a control character at byte 1; allowed: 1 to 255 bytes of UTF-8 without control characters and without white space at either end"
	if err == nil || err.Error() != want {
		t.Errorf("CheckName(tenant) = %q, want %q", err, want)
	}
}

func TestRawWireKeyMustFitAHeader(t *testing.T) {
	for key, ok := range map[string]bool{"order-17": true, `a "quoted" \ one`: true, "caf\u00e9": false, "a\x7f": false, "\U0001F642": false} {
		if err := contract.CheckWireKey(contract.WireRaw, key); (err == nil) != ok {
			t.Errorf("CheckWireKey(raw, %q) = %v, want accepted: %v", key, err, ok)
		}
		if err := contract.CheckWireKey(contract.WireScope, key); err != nil {
			t.Errorf("CheckWireKey(scope, %q) = %v, want nil", key, err)
		}
	}
}
