package arch

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// order is the whole of the module from top to bottom: a package imports only
// what stands below it. A package that is not here has no place yet.
var order = []string{
	"cmd", "daemon", "api", "audit", "projection", "poller", "hook", "intake", "deadletter", "lease", "guard",
	"handler", "contract", "entry", "ledger", "fencing", "backoff", "config", "systemd", "chaos/point",
}

// leaves import nothing of ours, so that others can use them alone.
var leaves = []string{"fencing", "backoff", "config", "systemd", "chaos/point"}

// place returns the member of order that dir belongs to, and its rank.
func place(dir string) (string, int) {
	for rank, name := range order {
		if within(dir, name) {
			return name, rank
		}
	}
	return "", -1
}

func isChaos(dir string) bool  { return within(dir, "chaos") && !within(dir, "chaos/point") }
func isHelper(dir string) bool { return strings.HasSuffix(path.Base(dir), "test") }

// isOutside names what stands beside the order: it may import everything.
func isOutside(dir string) bool {
	return isChaos(dir) || isHelper(dir) || within(dir, "examples", "internal/arch")
}

// importDirection complains about every import that points upwards.
func importDirection(t *tree) []string {
	var found []string
	for _, s := range t.sources {
		if s.file == nil {
			continue
		}
		if _, rank := place(s.dir); rank < 0 && !isOutside(s.dir) {
			found = append(found, fmt.Sprintf("%s: package %s has no place in the order", s.path, s.dir))
			continue
		}
		for _, spec := range s.file.Imports {
			target, ours := imported(spec.Path.Value)
			if !ours {
				continue
			}
			if why := forbidden(s, target); why != "" {
				found = append(found, fmt.Sprintf("%s: %s imports %s: %s", t.set.Position(spec.Pos()), s.dir, target, why))
			}
		}
	}
	return sorted(found)
}

// imported turns an import path into a directory of this module.
func imported(literal string) (string, bool) {
	name, err := strconv.Unquote(literal)
	if err != nil {
		return "", false
	}
	if name == module {
		return ".", true
	}
	return strings.CutPrefix(name, module+"/")
}

// forbidden says why s may not import target; "" if it may. Tests stand
// outside the order, but not outside the rule about chaos.
func forbidden(s source, target string) string {
	from, fromRank := place(s.dir)
	to, toRank := place(target)
	switch {
	case isChaos(target):
		if !within(s.dir, "cmd", "chaos") {
			return "only cmd imports chaos"
		}
	case s.test:
	case isHelper(target):
		if !isOutside(s.dir) {
			return "a test helper is for tests"
		}
	case isOutside(target):
		return "nothing imports what stands outside the order"
	case isOutside(s.dir) || from == to:
	case slices.Contains(leaves, from):
		return "it is a leaf and imports nothing of ours"
	case toRank <= fromRank:
		return "imports point downwards"
	}
	return ""
}

func TestImportsPointDownwards(t *testing.T) { obeyed(t, importDirection) }

func TestImportDirectionFindsPlantedViolations(t *testing.T) {
	one := func(dir, pkg, target string) map[string]string {
		return map[string]string{dir + "/a.go": "package " + pkg + "\nimport _ \"" + module + "/" + target + "\"\n"}
	}
	for _, p := range []planted{
		{"down", one("poller", "poller", "entry"), nil},
		{"down over several", one("cmd/outboxd", "main", "backoff"), nil},
		{"within", one("handler/script", "script", "handler"), nil},
		{"up", one("entry", "entry", "poller"), []string{"entry imports poller: imports point downwards"}},
		{"up by one", one("ledger", "ledger", "entry"), []string{"imports point downwards"}},
		{"leaf", one("fencing", "fencing", "backoff"), []string{"it is a leaf"}},
		{"leaf below chaos", one("chaos/point", "point", "systemd"), []string{"it is a leaf"}},
		{"point", one("ledger", "ledger", "chaos/point"), nil},
		{"cmd and chaos", one("cmd/outboxd", "main", "chaos"), nil},
		{"chaos and ours", one("chaos", "chaos", "daemon"), nil},
		{"chaos", one("daemon", "daemon", "chaos/witness"), []string{"only cmd imports chaos"}},
		{"helper in the product", one("ledger", "ledger", "ledger/ledgertest"), []string{"a test helper is for tests"}},
		{"helper above", one("ledger/ledgertest", "ledgertest", "audit"), nil},
		{"example", one("api", "api", "examples/shop"), []string{"outside the order"}},
		{"no place", one("util", "util", "entry"), []string{"package util has no place"}},
		{"root", map[string]string{"a.go": "package outboxd\n"}, []string{"package . has no place"}},
		{"test upwards", map[string]string{"entry/a_test.go": "package entry_test\nimport _ \"" + module + "/poller\"\n"}, nil},
		{"test and chaos", map[string]string{"entry/a_test.go": "package entry_test\nimport _ \"" + module + "/chaos\"\n"}, []string{"only cmd"}},
		{"foreign", map[string]string{"fencing/a.go": "package fencing\nimport _ \"github.com/outboxd/outboxd-extra\"\n"}, nil},
	} {
		t.Run(p.name, func(t *testing.T) { p.found(t, importDirection) })
	}
}
