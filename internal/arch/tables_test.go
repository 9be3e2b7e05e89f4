package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// writers names the one package that writes each table. Anyone may read.
var writers = map[string]string{
	"outbox_intake":    "intake",
	"outbox_refused":   "intake",
	"outbox_operation": "intake",
	"outbox_tombstone": "intake",
	"outbox_approval":  "intake",
	"outbox_entry":     "entry",
	"outbox_attempt":   "entry",
	"outbox_receipt":   "entry",
	"outbox_tool":      "poller",
	"outbox_meta":      "ledger",
	"outbox_review":    "deadletter",
	"outbox_session":   "projection",
	"outbox_turn":      "projection",
	"outbox_history":   "projection",
	"outbox_fence":     "fencing",
}

// designer names the package that defines the tables. The fence is not of our
// file: it stands in a downstream's.
func designer(table string) string {
	if table == "outbox_fence" {
		return "fencing"
	}
	return "ledger"
}

var (
	rowVerb   = `(?:INSERT\s+(?:OR\s+\w+\s+)?INTO|REPLACE\s+INTO|UPDATE(?:\s+OR\s+\w+)?|DELETE\s+FROM)`
	tableVerb = `(?:(?:CREATE|ALTER|DROP)\s+TABLE(?:\s+IF\s+(?:NOT\s+)?EXISTS)?)`
	tableName = `\s+(?:["\x60\[]?main["\x60\]]?\.)?["\x60\[]?(outbox_\w+)`

	writesRows = regexp.MustCompile(`(?i)\b` + rowVerb + tableName)
	definesOne = regexp.MustCompile(`(?i)\b` + tableVerb + tableName)
	namesNone  = regexp.MustCompile(`\b` + rowVerb + `\s+(?:%\S*\s*|\z)`)
)

// oneWriter complains about every statement that writes or defines a table in
// a package that does not own it. What stands outside the order may act as an
// application, or as the damage that a check must find.
func oneWriter(t *tree) []string {
	var found []string
	for _, s := range t.sources {
		if s.test || isOutside(s.dir) {
			continue
		}
		for _, sql := range s.statements(t.set) {
			found = append(found, sql.complaints(s.dir)...)
		}
	}
	return sorted(found)
}

type statement struct{ text, at string }

func (s statement) complaints(dir string) []string {
	var found []string
	here, _ := place(dir)
	for _, m := range writesRows.FindAllStringSubmatch(s.text, -1) {
		table := strings.ToLower(m[1])
		switch owner, known := writers[table]; {
		case !known:
			found = append(found, fmt.Sprintf("%s: %s has no owner", s.at, table))
		case owner != here:
			found = append(found, fmt.Sprintf("%s: %s writes %s, which belongs to %s", s.at, here, table, owner))
		}
	}
	for _, m := range definesOne.FindAllStringSubmatch(s.text, -1) {
		if table := strings.ToLower(m[1]); designer(table) != here {
			found = append(found, fmt.Sprintf("%s: %s defines %s; %s does that", s.at, here, table, designer(table)))
		}
	}
	if namesNone.MatchString(s.text) {
		found = append(found, fmt.Sprintf("%s: a statement that writes must name its table in one constant string", s.at))
	}
	return found
}

// statements returns every constant string of a source, concatenations joined.
func (s source) statements(set *token.FileSet) []statement {
	if s.file == nil {
		return []statement{{text: s.text, at: s.path}}
	}
	var list []statement
	ast.Inspect(s.file, func(n ast.Node) bool {
		expr, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, ok := constant(expr)
		if ok {
			list = append(list, statement{text: text, at: set.Position(n.Pos()).String()})
		}
		return !ok
	})
	return list
}

func constant(expr ast.Expr) (string, bool) {
	switch e := expr.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.ParenExpr:
		return constant(e.X)
	case *ast.BinaryExpr:
		left, okLeft := constant(e.X)
		right, okRight := constant(e.Y)
		return left + right, okLeft && okRight && e.Op == token.ADD
	}
	return "", false
}

func TestEachTableHasOneWriter(t *testing.T) { obeyed(t, oneWriter) }

func TestOneWriterFindsPlantedViolations(t *testing.T) {
	one := func(dir, expr string) map[string]string {
		return map[string]string{dir + "/a.go": "package p\nvar q = " + expr + "\n"}
	}
	for _, p := range []planted{
		{"owner", one("entry", "`UPDATE outbox_entry SET state = 'dead' WHERE id = ?`"), nil},
		{"reader", one("audit", "`SELECT * FROM outbox_entry`"), nil},
		{"trigger's event", one("ledger", "`CREATE TRIGGER t BEFORE UPDATE ON outbox_entry BEGIN SELECT 1; END`"), nil},
		{"upsert", one("ledger", "`INSERT INTO outbox_meta (id) VALUES (1) ON CONFLICT DO UPDATE SET last = 1`"), nil},
		{"insert", one("poller", "`INSERT INTO outbox_receipt (id) VALUES (1)`"), []string{"poller writes outbox_receipt, which belongs to entry"}},
		{"insert or", one("api", "`insert or ignore into outbox_operation VALUES (1)`"), []string{"belongs to intake"}},
		{"replace", one("api", "`REPLACE INTO outbox_tool VALUES (1)`"), []string{"belongs to poller"}},
		{"update", one("lease", "`UPDATE\n\t\toutbox_entry SET owner = 1`"), []string{"belongs to entry"}},
		{"update or", one("lease", "`UPDATE OR FAIL main.\"outbox_meta\" SET x = 1`"), []string{"belongs to ledger"}},
		{"delete", one("entry", "`DELETE FROM outbox_review`"), []string{"belongs to deadletter"}},
		{"second of two", one("entry", "`DELETE FROM outbox_entry; DELETE FROM outbox_intake`"), []string{"belongs to intake"}},
		{"joined", one("entry", `"DELETE " + ("FROM " + "outbox_intake")`), []string{"belongs to intake"}},
		{"built", one("entry", `"DELETE FROM " + table`), []string{"must name its table"}},
		{"formatted", one("entry", `"UPDATE %s SET x = 1"`), []string{"must name its table"}},
		{"unknown", one("entry", "`INSERT INTO outbox_extra VALUES (1)`"), []string{"outbox_extra has no owner"}},
		{"define", one("ledger", "`CREATE TABLE IF NOT EXISTS outbox_entry (id) STRICT`"), nil},
		{"define elsewhere", one("entry", "`CREATE TABLE outbox_entry (id) STRICT`"), []string{"ledger does that"}},
		{"fence", one("fencing", "`CREATE TABLE outbox_fence (key)`"), nil},
		{"sql file", map[string]string{"ledger/0001.sql": "INSERT INTO outbox_meta VALUES (1);\nDELETE FROM outbox_entry;"}, []string{"ledger/0001.sql: ledger writes outbox_entry"}},
		{"test", map[string]string{"poller/a_test.go": "package p\nvar q = `DELETE FROM outbox_entry`\n"}, nil},
		{"helper", one("ledger/ledgertest", "`DELETE FROM outbox_entry`"), nil},
	} {
		t.Run(p.name, func(t *testing.T) { p.found(t, oneWriter) })
	}
}
