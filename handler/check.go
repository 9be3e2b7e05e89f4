package handler

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/ledger"
)

// The purposes of a question before an effect.
const (
	Authorize Purpose = "authorize" // may this principal still do it
	Validate  Purpose = "validate"  // does it still make sense
)

// Checker asks the outside whether an effect may be produced. Whatever is not a
// clear yes or no is an error, which holds no URL and no payload.
type Checker interface {
	Check(ctx context.Context, c Call) (yes bool, err error)
}

// BuildChecker makes a checker of a guard with http or exec. done ends what it keeps
// open.
func BuildChecker(g config.Guard) (c Checker, done func(), err error) {
	switch {
	case g.HTTP != nil:
		e, err := newEndpoint(*g.HTTP, 1)
		if err != nil {
			return nil, nil, err
		}
		return inquiry{e}, e.wire.close, nil
	case g.Exec != nil:
		p, err := newProgram(*g.Exec)
		return p, func() {}, err
	}
	return nil, nil, errors.New("neither http nor exec is configured")
}

// Check runs the program with the purpose of the call: exit 0 is yes, 1 is no, any
// other end is an error.
func (g *program) Check(ctx context.Context, c Call) (bool, error) {
	end := g.run(ctx, c)
	switch {
	case end.unsent != "":
		return false, errors.New(end.unsent)
	case end.cutOff != "" || end.signal != 0 || end.exit > 1:
		return false, errors.New(end.code())
	}
	return end.exit == 0, nil
}

// inquiry is an endpoint that is asked by POST.
type inquiry struct{ *endpoint }

// Check posts what a program reads: 2xx is yes, 403 is no, any other answer an error.
func (q inquiry) Check(ctx context.Context, c Call) (bool, error) {
	target, err := url.Parse(q.url)
	if err != nil {
		return false, errors.New("url")
	}
	body, err := envelope(c)
	if err != nil {
		return false, errors.New("envelope")
	}
	req, err := q.request(q.method, target, c, body)
	if err != nil {
		return false, errors.New("sign")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Outbox-Purpose", string(c.Purpose))
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	rep, miss := q.wire.exchange(ctx, req)
	switch {
	case miss != nil:
		return false, errors.New(miss.code)
	case rep.observed() == Succeeded:
		return true, nil
	case rep.status == http.StatusForbidden:
		return false, nil
	}
	return false, errors.New(rep.code())
}

// Select is a question to the database file.
type Select struct{ statement }

// NewSelect refuses what could never be bound. The error holds no statement.
func NewSelect(text string) (*Select, error) {
	names, err := parameters(text)
	if err != nil {
		return nil, fmt.Errorf("sql: %w", err)
	}
	return &Select{statement{text, names}}, nil
}

// Check reports whether there is a row and the first column of the first one is
// true: a number other than 0.
func (s *Select) Check(q ledger.Querier, c Call) (bool, error) {
	params, err := paramsOf(c)
	if err != nil {
		return false, err
	}
	args, err := params.bind(s.names)
	if err != nil {
		return false, err
	}
	var first sql.Null[any]
	err = q.One(s.text, args...).Scan(&first)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("sql: %w", err)
	}
	switch v := first.V.(type) {
	case int64:
		return v != 0, nil
	case float64:
		return v != 0, nil
	}
	return false, nil
}
