package chaos_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/outboxd/outboxd/chaos"
)

// matrixOf runs `outboxd chaos` for a tool and returns its rows by point.
func (w *world) matrixOf(tool string, args ...string) (rows map[string]chaos.Row, code int, text string) {
	w.t.Helper()
	out, errs, code := w.command(append([]string{"chaos", "--tool", tool, "--wait", "20s", "-o", "json"}, args...)...)
	var result struct {
		OK     bool        `json:"ok"`
		Points []chaos.Row `json:"points"`
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		w.t.Fatalf("outboxd chaos exits with %d: %s%s", code, out, errs)
	}
	equal(w.t, "exit of an answer that is ok", result.OK, code == 0)
	rows = map[string]chaos.Row{}
	for _, r := range result.Points {
		rows[r.Point] = r
	}
	return rows, code, out
}

// witness is a program of the user's: it counts in the journal of the downstream.
func (w *world) witness() string {
	w.t.Helper()
	script := fmt.Sprintf("#!/bin/sh\ngrep '\"kind\":\"effect\"' %q | grep -c \"\\\"key\\\":\\\"$1\\\"\"\nexit 0\n", w.journal)
	must(w.t, os.WriteFile(w.path("witness"), []byte(script), 0o700))
	return w.path("witness")
}

// TestMatrix: a user's own downstream is told from its answers. One that keeps its
// word passes; one that is called idempotent and is not is found out, at the points
// where that matters.
func TestMatrix(t *testing.T) {
	w := newWorld(t)
	w.configure("retry: {initial: 10ms, max: 100ms}",
		w.http("honest", "idempotent", chaos.Now, ""), w.http("asked", "queryable", chaos.Now, "timeout: 200ms"),
		w.http("alone", "opaque", chaos.Now, ""),
		fmt.Sprintf(`{name: liar, effect: idempotent, http: {url: %q}}`, w.url+"/opaque/now"))
	witness := w.witness()
	for name, check := range map[string]func(*testing.T, map[string]chaos.Row, int) bool{
		"honest": func(_ *testing.T, rows map[string]chaos.Row, code int) bool {
			return code == 0 && rows["settle.before"].Killed && rows["settle.before"].Attempts == 2 && !rows["mark.before"].Killed
		},
		"liar": func(t *testing.T, rows map[string]chaos.Row, code int) bool {
			for at, want := range map[string]string{
				"settle.before": "twice after settle.before: the downstream does not deduplicate", "settle.after": "", "claim.after": "",
			} {
				if r := rows[at]; !r.Killed || r.Problem != want || r.Effects == nil {
					t.Errorf("at %s: %+v, want the problem %q", at, r, want)
				}
			}
			return code == 1
		},
		"asked": func(_ *testing.T, rows map[string]chaos.Row, code int) bool {
			r := rows["settle.before"]
			return code == 0 && r.Status == "succeeded" && r.Effects != nil && *r.Effects == 1 && rows["mark.before"].Killed
		},
		"alone": func(_ *testing.T, rows map[string]chaos.Row, code int) bool {
			r := rows["settle.before"]
			return code == 0 && r.Status == "unknown" && r.Effects == nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"--witness", witness}
			if name == "asked" || name == "alone" {
				args = nil
			}
			if rows, code, text := w.matrixOf(name, args...); !check(t, rows, code) {
				t.Errorf("exit %d, %s", code, text)
			}
		})
	}
}
