package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// later are the keys of the format that this version knows and does not offer.
// A word of a key stands there as key=word.
var later = []string{}

// offered reports whether this version takes the key (or key=word) at the path.
func offered(path string) bool {
	return !slices.Contains(later, index.ReplaceAllString(path, "[]"))
}

// offeredOf leaves those of the keys of the mapping at path that are offered.
func offeredOf(path string, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !offered(join(path, name)) })
}

func offeredWords(path string, words []string) []string {
	return slices.DeleteFunc(words, func(word string) bool { return !offered(path + "=" + word) })
}

const notYet = "not available in this version"

var (
	index = regexp.MustCompile(`\[[0-9]+\]`)
	// word is a key that is shown although it is unknown; others may be misplaced values.
	word = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// value checks the node against the type that it will be decoded to, and takes
// out of it what is wrong. It reports whether anything is left.
func (r *report) value(n *yaml.Node, t reflect.Type, tag reflect.StructTag, path string) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	found, allowed := "", ""
	switch {
	case r.full():
		return false
	case len(n.Content) > mostEntries*2 || n.Kind == yaml.SequenceNode && len(n.Content) > mostEntries:
		found, allowed = fmt.Sprintf("more than %d entries", mostEntries), "fewer"
	case n.Kind == yaml.AliasNode:
		found, allowed = "an alias", "the value itself"
	case n.Style&yaml.TaggedStyle != 0:
		found, allowed = "a YAML tag", "the value without a tag"
	case t == envVarType && n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str":
		return true
	case t.Kind() == reflect.Struct && t != rateType:
		if words := tag.Get("words"); words != "" && len(n.Content) == 0 {
			return r.short(n, strings.Fields(words), path)
		}
		return r.mapping(n, t, path)
	case t.Kind() == reflect.Slice:
		return r.sequence(n, t.Elem(), tag, path)
	default:
		found, allowed = scalar(n, t, tag, path)
	}
	if allowed == "" {
		return true
	}
	r.breaks(path, found, allowed)
	return false
}

// short checks what stands in the place of a mapping with keys: one of the words.
func (r *report) short(n *yaml.Node, words []string, path string) bool {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && slices.Contains(words, n.Value) {
		return true
	}
	r.breaks(path, show(n, ""), either(append(slices.Clone(words), "a mapping with at least one key")))
	return false
}

func (r *report) breaks(path, found, allowed string) {
	r.refuse(path, found, allowed)
	r.broken = append(r.broken, path)
}

func (r *report) sequence(n *yaml.Node, elem reflect.Type, tag reflect.StructTag, path string) bool {
	if n.Kind != yaml.SequenceNode {
		r.breaks(path, kind(n), "a list")
		return false
	}
	ok := true
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		r.at[at] = placeOf(item)
		ok = r.value(item, elem, tag, at) && ok
	}
	if !ok {
		r.broken = append(r.broken, path)
	}
	return ok
}

func (r *report) mapping(n *yaml.Node, t reflect.Type, path string) bool {
	names, fields := fieldsOf(t)
	names = offeredOf(path, names)
	if n.Kind != yaml.MappingNode {
		r.breaks(path, kind(n), "a mapping with the keys "+strings.Join(names, ", "))
		return false
	}
	kept := make([]*yaml.Node, 0, len(n.Content))
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !r.key(key, path, names) {
			continue
		}
		f, at := fields[key.Value], join(path, key.Value)
		r.at[at] = placeOf(value)
		if path == "" && value.ShortTag() == "!!null" {
			continue // a section whose lines are all commented out says nothing
		}
		if r.value(value, f.typ, f.tag, at) {
			kept = append(kept, key, value)
		}
	}
	r.meant(n, path, names)
	n.Content = kept
	return true
}

// meant marks the keys as broken that unknown ones were surely meant for, so
// that nobody is told that they are missing.
func (r *report) meant(n *yaml.Node, path string, names []string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		near := suggest(key, names)
		if near != "" && !slices.Contains(names, key) && !r.said(join(path, near)) {
			r.broken = append(r.broken, join(path, near))
		}
	}
}

// key checks one key of a mapping: a word, known, offered, said once.
func (r *report) key(key *yaml.Node, path string, names []string) bool {
	at := join(path, word.FindString(key.Value))
	switch {
	case key.Kind != yaml.ScalarNode || key.Style&yaml.TaggedStyle != 0 || !word.MatchString(key.Value):
		r.refuseAt(placeOf(key), path, "a key that is no plain word", "one of "+strings.Join(names, ", "))
	case !offered(at):
		r.broken = append(r.broken, at)
		r.refuseAt(placeOf(key), at, "a key that is "+notYet, "leave it out")
	case !slices.Contains(names, key.Value):
		allowed := "one of " + strings.Join(names, ", ")
		if near := suggest(key.Value, names); near != "" {
			allowed = "did you mean " + near + "? One of " + strings.Join(names, ", ")
		}
		r.refuseAt(placeOf(key), at, "an unknown key", allowed)
	case r.said(at):
		r.refuseAt(placeOf(key), at, "the same key a second time", fmt.Sprintf("each key once; the first is at line %d", r.at[at].line))
	default:
		return true
	}
	return false
}

// kind describes a node where a list or a mapping belongs: never its value.
func kind(n *yaml.Node) string { return show(n, `secret:"true"`) }
