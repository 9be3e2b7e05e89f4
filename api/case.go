package api

import (
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
	Principal      *Principal     `json:"principal,omitzero"` // nil: the only one that the caller may submit for
	Call           CaseCall       `json:"call"`
	IdempotencyKey string         `json:"idempotency_key"`
	Origin         *Origin        `json:"origin,omitzero"`
	Approval       jsontext.Value `json:"approval,omitzero"` // refused: not available in this version
	NotBefore      time.Time      `json:"not_before,omitzero"`
	Session        string         `json:"session,omitzero"`
	Turn           int64          `json:"turn,omitzero"`
	Traceparent    string         `json:"traceparent,omitzero"`
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
	if deeper(raw, contract.MaxDepth+2) {
		return invalid(InputError{"", fmt.Sprintf("more than %d levels", contract.MaxDepth+2),
			fmt.Sprintf("at most %d levels of arrays and objects in the arguments", contract.MaxDepth)})
	}
	if err := json.Unmarshal(raw, v, json.RejectUnknownMembers(true)); err != nil {
		return explain(raw, err)
	}
	return nil
}

// deeper reports, in one pass and before any decoder recurses, whether arrays
// and objects are nested more than limit deep.
func deeper(raw []byte, limit int) bool {
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = closing(raw, i)
		case '[', '{':
			if depth++; depth > limit {
				return true
			}
		case ']', '}':
			depth--
		}
	}
	return false
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
	e, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return invalid(InputError{"", "not the JSON object that this call takes", "see the reference"})
	}
	path := named(string(e.JSONPointer))
	if errors.Is(err, json.ErrUnknownName) {
		return invalid(InputError{path, "unknown member", "only the members of the reference, in their exact spelling"})
	}
	return invalid(InputError{path, "has the wrong type or form", wanted(e.GoType)})
}

// named is a JSON Pointer into a case as intake names the same place: by the
// member, without the objects that are only there for order.
func named(pointer string) string {
	path := strings.TrimPrefix(pointer, "/")
	for _, group := range []string{"call/", "principal/", "origin/"} {
		path = strings.TrimPrefix(path, group)
	}
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
