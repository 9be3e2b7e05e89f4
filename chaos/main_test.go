package chaos_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/outboxd/outboxd/chaos"
)

// asWitness makes the test binary a downstream: it holds the journal's path.
const asWitness = "CHAOS_TEST_WITNESS"

// binary is the daemon, built once for all tests as it is shipped. OUTBOXD_BINARY
// names another one, such as a mutant that must be caught.
var binary string

// full asks for the whole instead of a sample.
var full = os.Getenv("OUTBOXD_CHAOS") == "full"

func TestMain(m *testing.M) {
	if path := os.Getenv(asWitness); path != "" {
		os.Exit(witness(path))
	}
	os.Exit(testAll(m))
}

func witness(path string) int {
	w, err := chaos.NewWitness(path)
	if err == nil {
		err = w.Serve(context.Background(), os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func testAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "outboxd-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary = os.Getenv("OUTBOXD_BINARY"); binary == "" {
		binary = filepath.Join(dir, "outboxd")
		if err := build(binary); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	began := time.Now()
	code := m.Run()
	fmt.Fprint(os.Stderr, figureTable(time.Since(began)))
	if code == 0 && os.Getenv("OUTBOXD_FIGURES") == "write" {
		if err := writeFigures(time.Since(began)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

func build(out string, flags ...string) error {
	args := append([]string{"build", "-o", out}, flags...)
	cmd := exec.Command("go", append(args, "../cmd/outboxd")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the daemon: %w\n%s", err, text)
	}
	return nil
}
