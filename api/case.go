package api

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/outboxd/outboxd/contract"
)

// MaxBody is how many bytes a request's body may have.
const MaxBody = 256 << 10

// Case is the body of a submit.
type Case struct {
	Principal      *Principal `json:"principal,omitzero"` // nil: the only one that the caller may submit for
	Call           CaseCall   `json:"call"`
	IdempotencyKey string     `json:"idempotency_key"`
	Origin         *Origin    `json:"origin,omitzero"`
	Approval       *Approval  `json:"approval,omitzero"` // of an operator; nil: the operation waits where its tool wants one
	NotBefore      time.Time  `json:"not_before,omitzero"`
	Session        string     `json:"session,omitzero"`
	Turn           int64      `json:"turn,omitzero"`
	Traceparent    string     `json:"traceparent,omitzero"`
}

// received is a case as it came in. What is given as zero is not absent.
type received struct {
	Case
	NotBefore *time.Time `json:"not_before"`
	Turn      *int64     `json:"turn"`
}

// asCase is the case, where what was given can be meant.
func (r *received) asCase() (*Case, error) {
	if t := r.NotBefore; t != nil {
		if t.IsZero() {
			return nil, invalid(InputError{"not_before", "is out of range", "an instant of the years 1970 to 9999, or nothing"})
		}
		r.Case.NotBefore = *t
	}
	if n := r.Turn; n != nil {
		if *n == 0 {
			return nil, invalid(InputError{"turn", "is out of range", "1 to 2^53-1, or nothing"})
		}
		r.Case.Turn = *n
	}
	return &r.Case, nil
}

// Principal is for whom an operation is submitted.
type Principal struct {
	Tenant  string `json:"tenant_id"`
	Subject string `json:"subject_id"`
}

// CaseCall is what is to be done.
type CaseCall struct {
	Tool      string         `json:"tool_name"`
	Arguments jsontext.Value `json:"arguments"`
}

// Origin is where a call came from, as far as a provider's adapter says.
type Origin struct {
	Provider        string `json:"provider,omitzero"`
	APIFamily       string `json:"api_family,omitzero"`
	AdapterRevision string `json:"adapter_revision,omitzero"`
	ResponseID      string `json:"response_id,omitzero"`
	CallID          string `json:"call_id,omitzero"`
}

// Control is the body of a pause. It may be left out.
type Control struct {
	Reason string `json:"reason,omitzero"`
}

// decode reads one strict JSON object: names exact, known and once, UTF-8, no
// more levels than the arguments may have plus those of the case around them.
func decode(raw []byte, v any) error {
	if i := deeper(raw, contract.MaxDepth+2); i >= 0 {
		return invalid(InputError{place(raw, i), fmt.Sprintf("more than %d levels", contract.MaxDepth),
			fmt.Sprintf("at most %d levels of arrays and objects", contract.MaxDepth)})
	}
	if jsontext.Value(raw).Kind() != '{' {
		return explain(raw, errNoObject)
	}
	if err := json.Unmarshal(raw, v, json.RejectUnknownMembers(true)); err != nil {
		return explain(raw, err)
	}
	return nil
}

// errNoObject: null, which a decoder would take for nothing, or another value.
var errNoObject = errors.New("no JSON object")

// deeper is the index, found in one pass and before any decoder recurses, at which
// arrays and objects are nested more than limit deep; -1: nowhere.
func deeper(raw []byte, limit int) int {
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = closing(raw, i)
		case '[', '{':
			if depth++; depth > limit {
				return i
			}
		case ']', '}':
			depth--
		}
	}
	return -1
}

// place is the path of the value that begins at offset.
func place(raw []byte, offset int) string {
	d := jsontext.NewDecoder(bytes.NewReader(append(bytes.Clone(raw[:offset]), '0')))
	for {
		if _, err := d.ReadToken(); err != nil { // the end, or no JSON already before it
			return named(string(d.StackPointer()))
		}
	}
}

// closing is the index of the quote that ends the string which begins at i.
func closing(raw []byte, i int) int {
	for i++; i < len(raw) && raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i
}

// explain says what a decoder found wrong, without a value: as contract does
// where the input is no strict JSON, else by the member that does not fit.
func explain(raw []byte, err error) error {
	_, strict := contract.CanonicalLimit(raw, MaxBody)
	if in, ok := errors.AsType[*contract.InputError](strict); ok {
		return invalid(InputError{named(in.Path), in.What, in.Allowed})
	}
	if errors.Is(err, errNoObject) {
		return invalid(InputError{"", "the body must be a JSON object", "the members of the reference in one object"})
	}
	e, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return invalid(InputError{"", "not the JSON object that this call takes", "see the reference"})
	}
	if errors.Is(err, json.ErrUnknownName) {
		return invalid(InputError{short(strings.TrimPrefix(string(e.JSONPointer), "/")), "unknown member",
			"only the members of the reference, in their exact spelling"})
	}
	return invalid(InputError{named(string(e.JSONPointer)), "has the wrong type or form", wanted(e.GoType)})
}

// named is a JSON Pointer into a case as intake names the same place: by the
// member, without the objects that are only there for order.
func named(pointer string) string {
	path := strings.TrimPrefix(pointer, "/")
	for _, group := range []string{"call/", "principal/", "origin/"} {
		path = strings.TrimPrefix(path, group)
	}
	return short(path)
}

func short(path string) string {
	if len(path) > contract.MaxNameBytes {
		path = strings.ToValidUTF8(path[:contract.MaxNameBytes], "")
	}
	return path
}

func wanted(t reflect.Type) string {
	switch {
	case t == nil:
		return "see the reference"
	case t == reflect.TypeFor[time.Time]():
		return "an instant as RFC 3339 has it"
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Int64:
		return "an integer"
	}
	return "an object"
}
