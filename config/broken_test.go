package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxd/outboxd/config"
)

// TestBrokenFiles: each file of testdata/broken is refused, with every problem as
// its .txt says; the variables of its .env are set. `go test ./config -run Broken
// -update` writes what is said.
func TestBrokenFiles(t *testing.T) {
	config.OfferAll(t)
	files, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil || len(files) < 80 {
		t.Fatalf("%d broken files, %v; want at least 80", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			env, _ := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".env") // most have none
			got := refusal(t, string(text), strings.Fields(string(env))...) + "\n"
			if strings.Contains(got, "secret-77") {
				t.Errorf("a problem holds a secret:\n%s", got)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", got)
		})
	}
}

// golden compares with a file, or writes it.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *config.Update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), go test ./config -update writes it:\n%s", file, diff)
	}
}

// What is known and not built yet is refused by name, wherever it stands.
func TestKeysOfLaterVersionsAreRefusedByName(t *testing.T) {
	for _, key := range config.Later() {
		key, word, _ := strings.Cut(key, "=")
		text := word
		for _, part := range backwards(strings.Split(key, ".")) {
			name, listed := strings.CutSuffix(part, "[]")
			if text = name + ": {" + text + "}"; listed {
				text = name + ": [{" + strings.TrimSuffix(strings.TrimPrefix(text, name+": {"), "}") + "}]"
			} else if word != "" {
				text, word = name+": "+word, ""
			}
		}
		got := refusal(t, text)
		path := strings.ReplaceAll(key, "[]", "[0]")
		if !strings.Contains(got, path+": found ") || !strings.Contains(got, "not available in this version") {
			t.Errorf("%s: got %s, want %s to be refused as not available in this version", text, got, path)
		}
	}
}

func backwards(list []string) []string {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}
