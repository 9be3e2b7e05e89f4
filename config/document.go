package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// document reads the one YAML document of a file. It returns nil, with the
// problem reported, if there is not exactly one with a mapping in it.
func (r *report) document(data []byte) *yaml.Node {
	if !r.text(data) {
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err := decoder.Decode(&first); err != nil && !errors.Is(err, io.EOF) {
		r.syntax(err)
		return nil
	}
	if err := decoder.Decode(&second); err == nil {
		r.refuseAt(placeOf(&second), "", "a second YAML document", "one document in a file")
		return nil
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err)
		return nil
	}
	if len(first.Content) == 0 || first.Content[0].ShortTag() == "!!null" {
		r.refuse("", "no settings", "at least one key; an empty file is taken for one that is still being written")
		return nil
	}
	root := first.Content[0]
	r.at[""] = placeOf(root)
	if root.Kind != yaml.MappingNode {
		r.refuse("", kind(root), "a mapping of sections")
		return nil
	}
	return root
}

// text refuses what is not UTF-8 text of bounded size, before any parser sees it.
func (r *report) text(data []byte) bool {
	bad := invalidUTF8(data)
	switch {
	case len(data) > mostBytes:
		r.refuse("", fmt.Sprintf("more than %d bytes", mostBytes), "a smaller file")
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		r.refuseAt(place{line: 1, column: 1}, "", "a file that starts with a BOM", "UTF-8 without a byte order mark")
	case bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")):
		r.refuseAt(place{line: 1, column: 1}, "", "a file in UTF-16 (it starts with a BOM)", "UTF-8 without a byte order mark")
	case bad >= 0:
		line := bytes.Count(data[:bad], []byte("\n")) + 1
		column := bad - bytes.LastIndexByte(data[:bad], '\n')
		r.refuseAt(place{line: line, column: column}, "", fmt.Sprintf("a byte that is not UTF-8 text, at offset %d", bad), "UTF-8")
	default:
		return true
	}
	return false
}

// invalidUTF8 returns the offset of the first byte that is not text, or -1.
func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		c, size := utf8.DecodeRune(data[i:])
		if c == 0 || (c == utf8.RuneError && size == 1) {
			return i
		}
		i += size
	}
	return -1
}

// syntax reports a parser's error. The parser gives the line in its text only,
// and quotes nothing but the name of an alias, which is cut off: an unquoted
// value that begins with an asterisk is one.
func (r *report) syntax(err error) {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	at := place{}
	if _, scan := fmt.Sscanf(message, "line %d:", &at.line); scan == nil {
		at.column = 1
		_, message, _ = strings.Cut(message, ": ")
	}
	message, _, _ = strings.Cut(message, " '")
	r.refuseAt(at, "", "a YAML syntax error: "+clip(message), "YAML; text that begins with one of * & ! % @ [ { | > needs quotes")
}
