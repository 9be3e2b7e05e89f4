package handler_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// jobs is a file with a table of an application.
func jobs(t *testing.T) *ledger.Ledger {
	t.Helper()
	l := ledgertest.Open(t)
	for _, stmt := range []string{
		`CREATE TABLE job (id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, title TEXT UNIQUE, n, CHECK (n IS NOT 'forbidden'))`,
		`CREATE TRIGGER polite BEFORE INSERT ON job WHEN new.title = 'rude' BEGIN SELECT RAISE(ABORT, 'be polite'); END`,
	} {
		ledgertest.Write(t, l, func(tx *ledger.Tx) error { _, err := tx.Exec(stmt); return err })
	}
	return l
}

// apply runs a local handler as the poller does, and keeps what succeeded.
func apply(t *testing.T, l *ledger.Ledger, h handler.Local, arguments string) (out handler.Outcome) {
	t.Helper()
	c := call()
	c.Tenant, c.Key, c.Arguments = "acme", "k-1", []byte(arguments)
	no := errors.New("no")
	ledgertest.Write(t, l, func(tx *ledger.Tx) error {
		err := tx.Effect(time.Second, func(e *ledger.Effect) error {
			if out = h.Apply(e, c); out.Observed != handler.Succeeded {
				return no
			}
			return nil
		})
		if err != nil && !errors.Is(err, no) {
			t.Errorf("effect: %v", err)
		}
		return nil
	})
	return out
}

func script(t *testing.T, c config.SQL) handler.Local {
	t.Helper()
	pair, err := handler.Build(config.Tool{Name: "job", Effect: "local", SQL: &c})
	if err != nil {
		t.Fatal(err)
	}
	return pair.Local
}

func TestSQLBindsArgumentsAndTellsRows(t *testing.T) {
	const insert = `INSERT INTO job (tenant, title, n) VALUES (:tenant, :title, :n) RETURNING `
	for name, c := range map[string]struct {
		sql             config.SQL
		arguments, want string
	}{
		"returning":    {config.SQL{Statements: []string{insert + `id AS job_id, title`}}, `{"n":1,"title":"a"}`, `{"job_id":1,"title":"a"}`},
		"integer":      {config.SQL{Statements: []string{insert + `n, typeof(n) AS t`}}, `{"n":7,"title":"a"}`, `{"n":7,"t":"integer"}`},
		"real":         {config.SQL{Statements: []string{insert + `n, typeof(n) AS t`}}, `{"n":1.5,"title":"a"}`, `{"n":1.5,"t":"real"}`},
		"text":         {config.SQL{Statements: []string{insert + `n, typeof(n) AS t`}}, `{"n":"ü\n\"","title":"a"}`, `{"n":"ü\n\"","t":"text"}`},
		"true":         {config.SQL{Statements: []string{insert + `n, typeof(n) AS t`}}, `{"n":true,"title":"a"}`, `{"n":1,"t":"integer"}`},
		"null":         {config.SQL{Statements: []string{insert + `n, typeof(n) AS t`}}, `{"n":null,"title":"a"}`, `{"n":null,"t":"null"}`},
		"object":       {config.SQL{Statements: []string{insert + `n`}}, `{"n":{"a":[1]},"title":"a"}`, `{"n":"{\"a\":[1]}"}`},
		"names":        {config.SQL{Statements: []string{`SELECT :key AS k, :tenant_id AS t, :status_ref AS r, :attempt AS a, :arguments AS j`}}, `[1]`, `{"a":3,"j":"[1]","k":"k-1","r":"` + call().StatusRef + `","t":"acme"}`},
		"several":      {config.SQL{Statements: []string{insert + `id`, `UPDATE job SET title = upper(title) WHERE title = :title`}, Result: `SELECT title FROM job`}, `{"n":1,"title":"a"}`, `{"title":"A"}`},
		"rows":         {config.SQL{Statements: []string{`SELECT 1 AS i UNION SELECT 2`}}, `{}`, `[{"i":1},{"i":2}]`},
		"no rows":      {config.SQL{Statements: []string{`INSERT INTO job (tenant) VALUES (:tenant)`}}, `{}`, ``},
		"quoted names": {config.SQL{Statements: []string{`SELECT ':x' AS a, 1 AS ":y", 2 AS [:z] -- :w` + "\n/* :v */"}}, `{}`, `{":y":1,":z":2,"a":":x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			out := apply(t, jobs(t), script(t, c.sql), c.arguments)
			if out.Observed != handler.Succeeded || string(out.Result) != c.want {
				t.Errorf("got %s %s %s %q, want %s", out.Observed, out.Code, out.Result, out.Excerpt, c.want)
			}
		})
	}
}

func TestSQLSaysWhyItDidNothing(t *testing.T) {
	const insert = `INSERT INTO job (tenant, title, n) VALUES (:tenant, :title, 1)`
	for name, c := range map[string]struct {
		statements   []string
		arguments    string
		observed     handler.Observed
		code, reason string
	}{
		"constraint":       {[]string{insert, insert}, `{"title":"a"}`, handler.Rejected, "sqlite_2067", "UNIQUE constraint failed: job.title"},
		"check":            {[]string{insert, `UPDATE job SET n = 'forbidden'`}, `{"title":"a"}`, handler.Rejected, "sqlite_275", "CHECK constraint failed"},
		"trigger":          {[]string{insert}, `{"title":"rude"}`, handler.Rejected, "sqlite_1811", "be polite"},
		"missing argument": {[]string{insert}, `{"tittle":"a"}`, handler.Rejected, "argument_missing", ":title"},
		"no object":        {[]string{insert}, `[]`, handler.Rejected, "argument_missing", ":title"},
		"no table":         {[]string{insert, `INSERT INTO missing VALUES (1)`}, `{"title":"a"}`, handler.TryAgain, "sqlite_1", "no such table"},
		"forbidden":        {[]string{insert, `DELETE FROM outbox_entry`}, `{"title":"a"}`, handler.TryAgain, "forbidden", "not authorized"},
		"two columns":      {[]string{insert, `SELECT 1 AS a, 2 AS a`}, `{"title":"a"}`, handler.Rejected, "result_invalid", "one name"},
		"blob":             {[]string{insert, `SELECT x'00' AS a`}, `{"title":"a"}`, handler.Rejected, "result_invalid", "blob"},
		"great integer":    {[]string{insert, `SELECT 9007199254740992 AS a`}, `{"title":"a"}`, handler.Rejected, "result_invalid", "2^53-1"},
		"long":             {[]string{insert, `SELECT printf('%.*c', 70000, 'x') AS a`}, `{"title":"a"}`, handler.Rejected, "result_invalid", "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			l := jobs(t)
			out := apply(t, l, script(t, config.SQL{Statements: c.statements}), c.arguments)
			if out.Observed != c.observed || out.Code != c.code || !strings.Contains(out.Excerpt, c.reason) || !out.Answered {
				t.Errorf("got %s %s %q, want %s %s %q", out.Observed, out.Code, out.Excerpt, c.observed, c.code, c.reason)
			}
			var n int
			ledgertest.Read(t, l, func(v *ledger.View) error { return v.One(`SELECT count(*) FROM job`).Scan(&n) })
			if n != 0 {
				t.Errorf("got %d jobs of an effect that did not succeed", n)
			}
		})
	}
}

func TestSQLThatCouldNeverBeBoundIsRefusedAtTheStart(t *testing.T) {
	for _, text := range []string{`SELECT ?`, `SELECT ?1`, `SELECT @a`, `SELECT $a`, `SELECT 1; SELECT 2`, `SELECT :`} {
		_, err := handler.Build(config.Tool{Name: "job", Effect: "local", SQL: &config.SQL{Statements: []string{text}}})
		if err == nil || strings.Contains(err.Error(), text) {
			t.Errorf("%s: got %v, want it refused and not quoted", text, err)
		}
	}
	for _, text := range []string{`SELECT 1;`, `SELECT 1; -- done`, `SELECT 'a;b', "c;d", ";"`, "SELECT 1 ;\n/* ; */ "} {
		if _, err := handler.Build(config.Tool{Name: "job", Effect: "local", SQL: &config.SQL{Statements: []string{text}}}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestALocalFunctionSaysWhatHappened(t *testing.T) {
	cause := errors.New("no stock")
	for name, c := range map[string]struct {
		do       func(e *ledger.Effect) ([]byte, error)
		observed handler.Observed
		code     string
	}{
		"nil":     {func(*ledger.Effect) ([]byte, error) { return nil, nil }, handler.Succeeded, "committed"},
		"result":  {func(*ledger.Effect) ([]byte, error) { return []byte(`{ "a": 1 }`), nil }, handler.Succeeded, "committed"},
		"no JSON": {func(*ledger.Effect) ([]byte, error) { return []byte(`{`), nil }, handler.Rejected, "result_invalid"},
		"reject":  {func(*ledger.Effect) ([]byte, error) { return nil, handler.Reject(cause) }, handler.Rejected, "returned"},
		"again":   {func(*ledger.Effect) ([]byte, error) { return nil, handler.Again(cause, time.Minute) }, handler.TryAgain, "returned"},
		"ongoing": {func(*ledger.Effect) ([]byte, error) { return nil, handler.Ongoing(cause) }, handler.TryAgain, "returned"},
		"error":   {func(*ledger.Effect) ([]byte, error) { return nil, cause }, handler.TryAgain, "error"},
		"panic":   {func(*ledger.Effect) ([]byte, error) { panic("pw-7") }, handler.TryAgain, "panic"},
		"constraint": {func(e *ledger.Effect) ([]byte, error) {
			_, err := e.Exec(`INSERT INTO job (id) VALUES (1)`)
			return nil, err
		}, handler.Rejected, "sqlite_1299"},
		"busy": {func(*ledger.Effect) ([]byte, error) { return nil, ledger.ErrBusy }, handler.TryAgain, "error"},
	} {
		out := apply(t, jobs(t), handler.LocalFunc(func(e *ledger.Effect, _ handler.Call) ([]byte, error) { return c.do(e) }), `{}`)
		if out.Observed != c.observed || out.Code != c.code || strings.Contains(out.Excerpt, "pw-7") {
			t.Errorf("%s: got %s %s %q, want %s %s", name, out.Observed, out.Code, out.Excerpt, c.observed, c.code)
		}
	}
}

func FuzzSQLParameters(f *testing.F) {
	for _, seed := range []string{`SELECT :a, ':b', ":c" -- :d`, "/*:x*/ :y;", "[:a]:b", "'", "`:a`", ":é :1a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		names, err := handler.Parameters(text)
		if err == nil && slices.ContainsFunc(names, func(n string) bool { return n == "" || !strings.Contains(text, ":"+n) }) {
			t.Errorf("%q: got %q", text, names)
		}
	})
}
