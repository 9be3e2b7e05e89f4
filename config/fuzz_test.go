package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxd/outboxd/config"
)

// FuzzParse: no content panics; what is refused has problems in the order of
// position, each on one line; what is accepted is resolved and reads the same again.
func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../examples/outboxd.yaml")
	if err != nil {
		f.Fatal(err)
	}
	config.OfferAll(f)
	f.Add(example, "OUTBOXD_LEASE_TTL=5s")
	broken, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range broken {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "OUTBOXD_RETRY_MAX=1m")
	}
	for _, text := range []string{
		"", "---\n---\n", "log: {level: info", "a: &a [*a]", "<<: {}", "? [a]\n: b", "\xef\xbb\xbfa: b", "log: {}\r\n",
		"lease: {ttl: 30, ttl: 1d}", "listen: {socket_mode: 0640}", "worker: {exclusive: no}", "tools: [1, {}, {http: {headers: [{}]}}]",
		"tools: [{name: a, exec: {argv: [x], env: [A, {name: B}]}, rate: 5/h}]", "retry: {backoff: list, delays: [1s, 2s]}",
		"principals: [{name: a, uid: 0, may_submit: [{tenant: \"*\", subject: \"*\"}]}]", "retry: {factor: .inf}", "log: !!binary aGk=",
	} {
		f.Add([]byte(text), "OUTBOXD_RETRY_FACTOR=1e9")
	}
	f.Fuzz(func(t *testing.T, text []byte, variable string) {
		c, err := config.Parse("c.yaml", text, []string{variable})
		if err != nil {
			checkProblems(t, err)
			return
		}
		for _, tool := range c.Tools {
			if tool.Timeout <= 0 || tool.Retry.Max <= 0 || tool.Retry.MaxAttempts <= 0 || tool.Concurrency <= 0 || tool.Effect == "" {
				t.Errorf("tool is not resolved: %+v", tool)
			}
		}
		again, err := config.Parse("c.yaml", text, []string{variable})
		if diff := cmp.Diff(c, again); err != nil || diff != "" {
			t.Errorf("read again: %v\n%s", err, diff)
		}
	})
}

func checkProblems(t *testing.T, err error) {
	t.Helper()
	var problems *config.Problems
	if !errors.As(err, &problems) || len(problems.List) == 0 {
		t.Fatalf("error is %T %v, want problems", err, err)
	}
	for _, p := range problems.List {
		if strings.ContainsFunc(p.Error(), func(c rune) bool { return c < ' ' }) || p.Found == "" || p.Allowed == "" {
			t.Errorf("problem %q: want one line that says what was found and what is allowed", p.Error())
		}
	}
	inFile := slices.DeleteFunc(slices.Clone(problems.List), func(p config.Problem) bool { return p.File != "c.yaml" })
	if !slices.IsSortedFunc(inFile, func(a, b config.Problem) int {
		return (a.Line-b.Line)*1_000_000 + a.Column - b.Column
	}) {
		t.Errorf("problems are not in the order of position:\n%v", err)
	}
}
