package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var problemLine = regexp.MustCompile(`^(.*\.yaml(:\d+:\d+)?|environment): .*found .*; allowed: .+$`)

// No broken config file gets past `config check` or starts a daemon: exit status
// 78, every line a problem with its place, nothing on stdout.
func TestNoBrokenConfigIsAccepted(t *testing.T) {
	files, err := filepath.Glob("../../config/testdata/broken/*.yaml")
	if err != nil || len(files) < 80 {
		t.Fatalf("%d broken files, %v; want at least 80", len(files), err)
	}
	for _, file := range files {
		given, _ := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".env") // most have none
		env := strings.Fields(string(given))
		for _, words := range [][]string{{"config", "check"}, {"run"}} {
			var out, talk strings.Builder
			args := append([]string{"--config", file, "--db", t.TempDir() + "/o.db", "--socket", t.TempDir() + "/s"}, words...)
			status := Main(context.Background(), args, strings.NewReader(""), &out, &talk, env)
			if status != exitConfig || out.String() != "" {
				t.Errorf("%s, %s: exit status %d, stdout %q; want 78 and nothing", file, words, status, out.String())
			}
			for line := range strings.Lines(talk.String()) {
				if !problemLine.MatchString(strings.TrimSuffix(line, "\n")) || strings.Contains(line, "secret-77") {
					t.Errorf("%s, %s: %q is no problem with its place, or holds a secret", file, words, line)
				}
			}
		}
	}
}
