package handler

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/ledger"
)

// script is a tool of SQL statements.
type script struct {
	statements []statement
	selects    bool // the last statement is there for the result
}

type statement struct {
	text  string
	names []string // of its parameters
}

// newScript refuses what could never be bound. The error holds no statement.
func newScript(c config.SQL) (*script, error) {
	s := &script{selects: c.Result != ""}
	texts := slices.Clone(c.Statements)
	if s.selects {
		texts = append(texts, c.Result)
	}
	if len(texts) == 0 {
		return nil, errors.New("sql has no statement")
	}
	for i, text := range texts {
		names, err := parameters(text)
		if err != nil {
			return nil, fmt.Errorf("sql statement %d: %w", i+1, err)
		}
		s.statements = append(s.statements, statement{text, names})
	}
	return s, nil
}

// errMissing says which argument a statement names that the request lacks.
type errMissing struct{ name string }

func (e *errMissing) Error() string {
	return "the statement names :" + e.name + ", and the arguments have no such member"
}

// Apply runs the statements in their order. The rows of the last one are the
// result: none is null, one is an object of its columns, more are a list of them.
func (s *script) Apply(e *ledger.Effect, c Call) Outcome {
	params, err := paramsOf(c)
	if err != nil {
		return Outcome{Observed: Rejected, Code: "arguments_invalid", Excerpt: "the arguments cannot be read", Answered: true, Err: err}
	}
	var rows collector
	for i, stmt := range s.statements {
		args, err := params.bind(stmt.names)
		if missing, ok := errors.AsType[*errMissing](err); ok {
			return Outcome{Observed: Rejected, Code: "argument_missing", Excerpt: missing.Error(), Answered: true}
		}
		if i < len(s.statements)-1 {
			_, err = e.Exec(stmt.text, args...)
		} else {
			err = e.Query(rows.add, stmt.text, args...)
		}
		if bad, ok := errors.AsType[*errResult](err); ok {
			return Outcome{Observed: Rejected, Code: "result_invalid", Excerpt: bad.Error(), Answered: true}
		}
		if err != nil {
			return Undone(err)
		}
	}
	return applied(rows.result())
}

// params are what a statement may name: the fields of the call, then the members
// of the arguments.
type params map[string]any

func paramsOf(c Call) (params, error) {
	p := params{}
	if bytes.HasPrefix(c.Arguments, []byte("{")) {
		members := map[string]jsontext.Value{}
		if err := json.Unmarshal(c.Arguments, &members); err != nil {
			return nil, fmt.Errorf("read arguments: %w", err)
		}
		for name, value := range members {
			v, err := sqlValue(value)
			if err != nil {
				return nil, err
			}
			p[name] = v
		}
	}
	p["tenant_id"], p["tenant"] = c.Tenant, c.Tenant
	p["subject_id"], p["subject"] = c.Subject, c.Subject
	p["idempotency_key"], p["key"] = c.Key, c.Key
	p["tool"], p["wire_key"], p["status_ref"] = c.Tool, c.WireKey, c.StatusRef
	p["attempt"], p["fencing_token"] = int64(c.Attempt), c.Token
	p["arguments"] = string(c.Arguments)
	return p, nil
}

func (p params) bind(names []string) ([]any, error) {
	args := make([]any, len(names))
	for i, name := range names {
		value, ok := p[name]
		if !ok {
			return nil, &errMissing{name}
		}
		args[i] = sql.Named(name, value)
	}
	return args, nil
}

// sqlValue is a JSON value as SQLite has it: true and false are 1 and 0, an array
// or an object is its JSON text.
func sqlValue(v jsontext.Value) (any, error) {
	switch v.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return v.Kind() == 't', nil
	case '0':
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n, nil
		}
		f, err := strconv.ParseFloat(string(v), 64)
		return f, err
	case '"':
		var s string
		err := json.Unmarshal(v, &s)
		return s, err
	}
	return string(v), nil
}

// errResult says why a row cannot be told as JSON.
type errResult struct{ what string }

func (e *errResult) Error() string { return "the result " + e.what }

// collector makes JSON of rows.
type collector struct {
	rows [][]byte
	size int
}

func (c *collector) add(columns []string, values []driver.Value) error {
	b := []byte{'{'}
	for i, name := range columns {
		if i > 0 {
			b = append(b, ',')
		}
		if slices.Contains(columns[:i], name) {
			return &errResult{"has two columns of one name: give them names with AS"}
		}
		var err error
		if b, err = jsontext.AppendQuote(b, name); err != nil {
			return &errResult{"has a column whose name is no UTF-8"}
		}
		if b, err = appendValue(append(b, ':'), values[i]); err != nil {
			return err
		}
	}
	b = append(b, '}')
	if c.size += len(b); c.size > MaxResult {
		return &errResult{fmt.Sprintf("has more than %d bytes", MaxResult)}
	}
	c.rows = append(c.rows, b)
	return nil
}

// exact is the largest integer that every JSON reader keeps: 2^53-1.
const exact = 1<<53 - 1

func appendValue(b []byte, v driver.Value) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case int64:
		if v > exact || v < -exact {
			return nil, &errResult{"has an integer beyond 2^53-1: make it a text"}
		}
		return strconv.AppendInt(b, v, 10), nil
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return nil, &errResult{"has a number that is none in JSON"}
		}
		return strconv.AppendFloat(b, v, 'g', -1, 64), nil
	case string:
		if !utf8.ValidString(v) {
			return nil, &errResult{"has a text that is no UTF-8"}
		}
		return jsontext.AppendQuote(b, v)
	}
	return nil, &errResult{"has a blob: make it a text with hex()"}
}

func (c *collector) result() []byte {
	switch len(c.rows) {
	case 0:
		return nil
	case 1:
		return c.rows[0]
	}
	return slices.Concat([]byte{'['}, bytes.Join(c.rows, []byte{','}), []byte{']'})
}
