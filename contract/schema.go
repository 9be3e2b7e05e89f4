package contract

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// maxSchema is how long a schema may be, in bytes.
const maxSchema = 256 << 10

// maxProblems caps what one value is told to break.
const maxProblems = 20

// Schema is a compiled JSON Schema of the draft 2020-12. The nil Schema takes
// everything. It never changes, and reads nothing once it is compiled.
type Schema struct {
	compiled *jsonschema.Schema
	document jsontext.Value // canonical: what the revision covers
}

// NewSchema compiles a schema. It is read strictly, as arguments are, and may refer
// to itself and to the standard's own schemas: nothing is fetched, neither from the
// network nor from the disk. format and content are annotations, as the standard has
// them unless asked otherwise.
func NewSchema(raw []byte) (*Schema, error) {
	document, err := CanonicalLimit(raw, maxSchema)
	if err != nil {
		return nil, err
	}
	var doc any
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(jsonschema.SchemeURLLoader{})
	const name = "outboxd:schema"
	if err := c.AddResource(name, doc); err != nil {
		return nil, wrongSchema(err)
	}
	compiled, err := c.Compile(name)
	if err != nil {
		return nil, wrongSchema(err)
	}
	return &Schema{compiled, document}, nil
}

// wrongSchema says what is wrong with a schema, which is the operator's own.
func wrongSchema(err error) error {
	if broken, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if v, ok := errors.AsType[*jsonschema.ValidationError](broken.Err); ok {
			return problems(v)[0]
		}
	}
	if _, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return &InputError{What: "refers to a schema outside of itself", Allowed: "references into the same document"}
	}
	return &InputError{What: "is no JSON Schema: " + capped(err.Error()), Allowed: "a JSON Schema of the draft 2020-12"}
}

// readSchema compiles the schema of a file; "" is none. The error holds no path.
func readSchema(path string) (*Schema, error) {
	if path == "" {
		return nil, nil
	}
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxSchema {
		return nil, tooLong("", int(info.Size()), maxSchema)
	}
	raw, err := os.ReadFile(path)
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	if err != nil {
		if errors.Is(err, syscall.ENOENT) {
			return nil, &InputError{What: "there is no such file", Allowed: "the path of a JSON Schema"}
		}
		return nil, fmt.Errorf("read schema: %w", err)
	}
	return NewSchema(raw)
}

// Check compares a canonical JSON value with the schema; no value at all is null. It
// gives what does not fit, at most twenty problems, with paths below path. None of
// them tells a value.
func (s *Schema) Check(path string, value []byte) []InputError {
	if s == nil {
		return nil
	}
	if len(value) == 0 {
		value = []byte("null")
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return []InputError{{Path: path, What: "cannot be read", Allowed: "canonical JSON"}}
	}
	err := s.compiled.Validate(v)
	if err == nil {
		return nil
	}
	broken, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []InputError{{Path: path, What: "cannot be compared with the schema", Allowed: "a value that fits the schema"}}
	}
	var list []InputError
	for _, p := range problems(broken) {
		p := *p
		p.Path = capped(path + p.Path)
		list = append(list, p)
	}
	return list
}

// body is what a revision covers of a schema.
func (s *Schema) body() any {
	if s == nil {
		return nil
	}
	return s.document
}

// problems are the leaves of what a validation found, in the order of their paths;
// at least one.
func problems(v *jsonschema.ValidationError) (list []*InputError) {
	var walk func(v *jsonschema.ValidationError)
	walk = func(v *jsonschema.ValidationError) {
		for _, cause := range v.Causes {
			walk(cause)
		}
		if len(v.Causes) == 0 {
			list = append(list, explainKind(pointer(v.InstanceLocation), v.ErrorKind)...)
		}
	}
	walk(v)
	slices.SortStableFunc(list, func(a, b *InputError) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return strings.Compare(a.What, b.What)
	})
	return list[:min(len(list), maxProblems)]
}

// explainKind says in words what a keyword demands. What the value is is not told,
// but for its type.
func explainKind(path string, k jsonschema.ErrorKind) []*InputError {
	one := func(what, allowed string) []*InputError {
		return []*InputError{{Path: path, What: what, Allowed: capped(allowed)}}
	}
	switch k := k.(type) {
	case *kind.Type:
		return one("is of the type "+k.Got, strings.Join(k.Want, " or "))
	case *kind.Required:
		return members(path, k.Missing, InputError{What: "is absent", Allowed: "a value: the schema requires it", Missing: true})
	case *kind.AdditionalProperties:
		return members(path, k.Properties, InputError{What: "is no member of the schema", Allowed: "the members of the schema"})
	case *kind.Enum:
		return one("is another value", "one of "+written(k.Want))
	case *kind.Const:
		return one("is another value", written(k.Want))
	case *kind.Pattern:
		return one("does not match the pattern", k.Want)
	case *kind.MinLength:
		return one(fmt.Sprintf("has %d characters", k.Got), fmt.Sprintf("at least %d", k.Want))
	case *kind.MaxLength:
		return one(fmt.Sprintf("has %d characters", k.Got), fmt.Sprintf("at most %d", k.Want))
	case *kind.Minimum:
		return one("is too small", "at least "+k.Want.RatString())
	case *kind.Maximum:
		return one("is too large", "at most "+k.Want.RatString())
	case *kind.FalseSchema:
		return one("is not allowed here", "nothing")
	}
	keyword := "its schema"
	if at := k.KeywordPath(); len(at) > 0 {
		keyword = at[len(at)-1]
	}
	return one("does not fit the schema", "what "+keyword+" says")
}

func members(path string, names []string, as InputError) (list []*InputError) {
	for _, name := range names {
		e := as
		e.Path = path + pointer([]string{name})
		list = append(list, &e)
	}
	return list
}

// pointer is a JSON Pointer (RFC 6901).
func pointer(names []string) string {
	var b bytes.Buffer
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for _, name := range names {
		b.WriteByte('/')
		b.WriteString(escape.Replace(name))
	}
	return b.String()
}

// written is a value of the schema as JSON.
func written(v any) string {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return "what the schema says"
	}
	return string(b)
}
