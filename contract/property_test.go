package contract_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/outboxd/outboxd/contract"
	"pgregory.net/rapid"
)

// values draws JSON values: nil, bool, int64, string, []any, map[string]any.
func values(depth int) *rapid.Generator[any] {
	leaf := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		rapid.Int64Range(-1<<53+1, 1<<53-1).AsAny(),
		rapid.String().AsAny(),
	}
	if depth == 0 {
		return rapid.OneOf(leaf...)
	}
	inner := values(depth - 1)
	return rapid.OneOf(append(leaf,
		rapid.SliceOfN(inner, 0, 4).AsAny(),
		rapid.MapOfN(rapid.String(), inner, 0, 6).AsAny(),
	)...)
}

// spelling writes a value in one of the many ways that JSON allows.
type spelling struct {
	r *rand.Rand
	b strings.Builder
}

func spell(v any, seed uint64) string {
	s := &spelling{r: rand.New(rand.NewPCG(seed, 0))}
	s.value(v)
	return s.b.String()
}

func (s *spelling) pick(of ...string) string { return of[s.r.IntN(len(of))] }

func (s *spelling) space() { s.b.WriteString(s.pick("", "", " ", "\n", "\t\r\n ")) }

func (s *spelling) value(v any) {
	s.space()
	switch v := v.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		s.r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		s.list("{}", len(names), func(i int) {
			s.value(names[i])
			s.b.WriteByte(':')
			s.value(v[names[i]])
		})
	case []any:
		s.list("[]", len(v), func(i int) { s.value(v[i]) })
	case string:
		s.text(v)
	case int64:
		fmt.Fprintf(&s.b, s.pick("%d", "%d.0", "%de0", "%d.00E-0", "%d.000e+00"), v)
	default:
		s.b.WriteString(map[any]string{nil: "null", true: "true", false: "false"}[v])
	}
	s.space()
}

func (s *spelling) list(brackets string, n int, element func(int)) {
	s.b.WriteByte(brackets[0])
	s.space()
	for i := range n {
		if i > 0 {
			s.b.WriteByte(',')
		}
		element(i)
	}
	s.b.WriteByte(brackets[1])
}

func (s *spelling) text(v string) {
	s.b.WriteByte('"')
	for _, r := range v {
		if must := r < ' ' || r == '"' || r == '\\'; !must && s.r.IntN(3) > 0 {
			s.b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&s.b, s.pick(`\u%04x`, `\u%04X`), unit)
		}
	}
	s.b.WriteByte('"')
}

func TestEverySpellingHasOneCanonicalForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := values(3).Draw(t, "value")
		one := canonical(t, spell(v, rapid.Uint64().Draw(t, "one")))
		other := canonical(t, spell(v, rapid.Uint64().Draw(t, "other")))
		if one != other {
			t.Fatalf("one value has two forms:\n%s\n%s", one, other)
		}
		if again := canonical(t, one); again != one || !contract.IsCanonical([]byte(one)) {
			t.Fatalf("Canonical(%q) = %q, want it unchanged", one, again)
		}
	})
}

func TestOneChangedByteIsCanonicalOnlyIfTheLibrarySaysSo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(canonical(t, spell(values(3).Draw(t, "value"), 1)))
		i := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		b[i] = rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte(`0-.e9"\{}[],: ut`))).Draw(t, "byte")
		agrees(t, b)
	})
}

// agrees holds the answers for b against the library's, which know nothing of
// the fast way and of our limits: what we accept is what it accepts.
func agrees(t fataler, b []byte) {
	t.Helper()
	library := jsontext.Value(bytes.Clone(b))
	libraryErr := library.Canonicalize()
	got, err := contract.CanonicalLimit(b, 1<<20)
	if err == nil && (libraryErr != nil || !bytes.Equal(got, library)) {
		t.Fatalf("Canonical(%q) = %q, the library says %q, %v", b, got, library, libraryErr)
	}
	if is, want := contract.IsCanonical(b), err == nil && bytes.Equal(got, b); is != want {
		t.Fatalf("IsCanonical(%q) = %v, want %v", b, is, want)
	}
	if err != nil {
		return
	}
	if again, err := contract.CanonicalLimit(got, 1<<20); err != nil || !bytes.Equal(again, got) {
		t.Fatalf("Canonical(%q) = %q, and of that %q, %v", b, got, again, err)
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		payload, spaced, `{"a":1,"\u0061":2}`, `{"\ufb33":1,"\ud83d\ude00":2}`, `"\ud800"`, "\xef\xbb\xbf{}",
		`[0,-0,1.0,1e15,1e400,1e-400,9007199254740993,0.30000000000000004,5e-324]`, `"\b\t\n\f\r\u0000\u001f\u007f\/"`,
		strings.Repeat("[", 33), `{"a":NaN}`, "\"\xc0\x80\"", `[-]`, `[1.]`, `[00]`, `[1e]`, `{"a":{"b":[[],{},null,true,false]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) { agrees(t, raw) })
}
