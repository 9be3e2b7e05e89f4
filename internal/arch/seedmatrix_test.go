package arch

import (
	"io/fs"
	"strings"
	"testing"
)

const matrixPage = "docs/seed-matrix.md"

func TestEveryRowOfTheMatrixHasItsTest(t *testing.T) {
	found, err := named(house(), matrixPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
	page, err := fs.ReadFile(house(), matrixPage)
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| what") {
			continue
		}
		rows++
		if !testName.MatchString(line) {
			t.Errorf("%s: a row without a test: %s", matrixPage, line)
		}
	}
	if rows < 40 {
		t.Errorf("%s has %d rows, want all of them", matrixPage, rows)
	}
}
