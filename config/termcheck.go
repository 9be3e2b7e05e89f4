package config

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// local checks a tool whose effect is in the database file.
func (r *report) local(path string, t Tool) {
	at := path + ".sql"
	if t.SQL != nil {
		if t.HTTP != nil || t.Exec != nil {
			r.refuse(at, "sql beside http or exec", "one of them")
		}
		if t.Effect != "" && t.Effect != "local" {
			r.refuse(path+".effect", quote(t.Effect)+" with sql", "local, which is what it is unless said", path+".effect", at)
		}
		r.timeoutOnce(at, t.Timeout > 0, t.SQL.Timeout > 0)
		r.statements(at, *t.SQL)
	}
	if (t.SQL != nil || t.Effect == "local") && t.Timeout > longestLocal {
		r.refuse(path+".timeout", brief(t.Timeout)+" with a local effect", "at most "+brief(longestLocal)+": nothing else is written meanwhile", path+".timeout", at)
	}
	if t.Effect == "local" && (t.HTTP != nil || t.Exec != nil) {
		r.refuse(path+".effect", "local with http or exec", "sql, or another effect", path+".effect", path+".http", path+".exec")
	}
	if (t.SQL != nil || t.Effect == "local") && t.Query != nil {
		r.refuse(path+".query", "a query of a local tool", "none: its receipt is the proof", path+".query", path+".effect", at)
	}
}

func (r *report) statements(path string, s SQL) {
	if len(s.Statements) == 0 {
		r.refuse(path+".statements", "nothing", "a list of at least one statement")
	}
	for i, statement := range s.Statements {
		r.statement(fmt.Sprintf("%s.statements[%d]", path, i), statement)
	}
	if s.Result != "" || r.said(path+".result") {
		r.question(path+".result", s.Result)
	}
}

// statement checks what can be seen without the database. It is never quoted.
func (r *report) statement(path, text string) {
	switch {
	case strings.TrimSpace(text) == "":
		r.refuse(path, "an empty statement", "one SQL statement")
	case strings.ContainsRune(text, 0):
		r.refuse(path, "a statement with a NUL", "one SQL statement")
	case slices.Contains([]string{"BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA", "ATTACH", "DETACH", "VACUUM"}, firstWord(text)):
		r.refuse(path, "a statement that is about the transaction or the connection", "INSERT, UPDATE, DELETE and their like")
	}
}

func (r *report) question(path, text string) {
	if word := firstWord(text); strings.ContainsRune(text, 0) || word != "SELECT" && word != "WITH" && word != "VALUES" {
		r.refuse(path, "text that is no question", "a statement that begins with SELECT, WITH or VALUES")
	}
}

func firstWord(text string) string {
	text = strings.TrimSpace(text)
	if end := strings.IndexFunc(text, func(c rune) bool { return !unicode.IsLetter(c) }); end >= 0 {
		text = text[:end]
	}
	return strings.ToUpper(text)
}

// terms checks what a tool demands before and after an effect.
func (r *report) terms(path string, t Tool) {
	for i, g := range t.Guards {
		r.guard(fmt.Sprintf("%s.guards[%d]", path, i), g)
	}
	mode := path + ".approval"
	switch {
	case t.Approval.ExpiresAfter > 0 && (t.Approval.Mode == "" || t.Approval.Mode == "none"):
		r.refuse(mode, "expires_after without an approval", "mode required or at_effect beside it")
	case r.said(mode) && t.Approval.Mode == "":
		r.refuse(mode, "an approval without a mode", "none, required or at_effect")
	}
	if b := t.Breaker; b.Failures <= 0 && (b.Window > 0 || b.Cooldown > 0) {
		r.refuse(path+".breaker", "a breaker without failures", "failures, or off")
	}
	if u := t.UnknownBudget; u.Count <= 0 && u.Per > 0 {
		r.refuse(path+".unknown_budget", "a budget without a count", "count, or off")
	}
	for _, schema := range []struct{ key, path string }{{"input_schema", t.InputSchema}, {"output_schema", t.OutputSchema}} {
		if at := path + "." + schema.key; r.said(at) && schema.path == "" {
			r.refuse(at, "nothing", "the path of a JSON Schema")
		}
	}
}

func (r *report) guard(path string, g Guard) {
	if g.Purpose == "" {
		r.refuse(path+".purpose", "nothing", "authorize or validate")
	}
	kinds := []string{path + ".static", path + ".exec", path + ".http", path + ".sql"}
	n := 0
	for _, set := range []bool{g.Static != nil, g.Exec != nil, g.HTTP != nil, g.SQL != nil} {
		if set {
			n++
		}
	}
	if n != 1 {
		found := "none of static, exec, http and sql"
		if n > 1 {
			found = "more than one of static, exec, http and sql"
		}
		r.refuse(path, "a guard with "+found, "exactly one of them", kinds...)
		return
	}
	r.target(path, g.HTTP, g.Exec, g.Timeout > 0, false)
	if g.Exec != nil && (g.Exec.Rejected != nil || g.Exec.TryAgain != nil) {
		r.refuse(path+".exec", "exit codes of a guard", "none: 0 is yes, 1 is no, anything else an error", path+".exec.rejected", path+".exec.try_again")
	}
	if g.SQL != nil {
		r.question(path+".sql.select", g.SQL.Select)
	}
	if g.Static != nil {
		r.static(path, g)
	}
}

func (r *report) static(path string, g Guard) {
	if g.Purpose == "validate" {
		r.refuse(path+".purpose", "validate with static", "authorize: roles say nothing about whether an effect still makes sense", path+".purpose", path+".static")
	}
	if g.Timeout > 0 {
		r.refuse(path+".timeout", "a timeout of a static guard", "none: it asks nobody", path+".timeout", path+".static")
	}
	at := path + ".static.roles"
	if len(g.Static.Roles) == 0 {
		r.refuse(at, "nothing", "at least one role")
	}
	for i, role := range g.Static.Roles {
		r.role(fmt.Sprintf("%s[%d]", at, i), role, g.Static.Roles[:i])
	}
}

// role checks a role in a list, in which it stands once.
func (r *report) role(path, role string, before []string) {
	r.name(path, role)
	if role != "" && slices.Contains(before, role) {
		r.refuse(path, quote(role)+" a second time", "each role once")
	}
}
