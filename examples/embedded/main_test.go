package main

import (
	"strings"
	"testing"
)

func TestOneOrderOneMail(t *testing.T) {
	dir := t.TempDir()
	const delivered = "order-17: succeeded, attempts 2, result {\"mail\":1}\n"
	for _, want := range []string{"mail 1 to ann@shop.example\n" + delivered, delivered} {
		var out strings.Builder
		if err := run(t.Context(), dir, &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("printed %q, want %q", out.String(), want)
		}
	}
}
