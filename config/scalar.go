package config

import (
	"cmp"
	"errors"
	"io/fs"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	modeType     = reflect.TypeFor[fs.FileMode]()
	rateType     = reflect.TypeFor[Rate]()
	envVarType   = reflect.TypeFor[EnvVar]()
	approvalType = reflect.TypeFor[Approval]()
	breakerType  = reflect.TypeFor[Breaker]()
	budgetType   = reflect.TypeFor[UnknownBudget]()
)

var (
	errUnitMissing = errors.New("unit missing")
	errDuration    = errors.New("no duration")
	errMode        = errors.New("no octal mode")
	errRate        = errors.New("no rate")
)

var (
	bareNumber = regexp.MustCompile(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)$`)
	decimal    = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	octalMode  = regexp.MustCompile(`^0[0-7]{3}$`)
	rateText   = regexp.MustCompile(`^([1-9][0-9]{0,6})/([smh])$`)
)

// parseDuration is time.ParseDuration without its bare 0: a unit is demanded.
func parseDuration(text string) (time.Duration, error) {
	if bareNumber.MatchString(text) {
		return 0, errUnitMissing
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errDuration
	}
	return d, nil
}

// parseMode reads permission bits: a zero and three octal digits.
func parseMode(text string) (fs.FileMode, error) {
	if !octalMode.MatchString(text) {
		return 0, errMode
	}
	bits, err := strconv.ParseUint(text, 8, 32)
	return fs.FileMode(bits), err
}

// parseRate reads 20/s, 100/m or 5/h; at most 9,999,999 events.
func parseRate(text string) (Rate, error) {
	m := rateText.FindStringSubmatch(text)
	if m == nil {
		return Rate{}, errRate
	}
	events, err := strconv.Atoi(m[1])
	per := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[m[2]]
	return Rate{Events: events, Per: per}, err
}

// scalar checks the type of one plain value. It returns what is allowed, and ""
// if the value is of the type; its range is looked at later.
func scalar(n *yaml.Node, t reflect.Type, tag reflect.StructTag, path string) (found, allowed string) {
	found = show(n, tag)
	text := n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str"
	switch {
	case t == durationType:
		return duration(n, tag)
	case t == modeType:
		if _, err := parseMode(n.Value); err != nil || !text || n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0 {
			return found, `a quoted octal string, for example "0660"`
		}
	case t == rateType:
		if _, err := parseRate(n.Value); err != nil || !text {
			return found, "events per second, minute or hour, for example 20/s, 100/m or 5/h"
		}
	case t.Kind() == reflect.String:
		if !text {
			return found, textAllowed(n, tag, path)
		}
	case t.Kind() == reflect.Bool:
		if n.ShortTag() != "!!bool" {
			return found, "true or false, without quotes"
		}
	case t.Kind() == reflect.Int:
		if _, err := strconv.Atoi(n.Value); err != nil || n.ShortTag() != "!!int" || !decimal.MatchString(n.Value) {
			return found, "a whole number in plain decimal digits" + within(tag)
		}
	case t.Kind() == reflect.Float64:
		if kind := n.ShortTag(); kind != "!!int" && kind != "!!float" || !bareNumber.MatchString(n.Value) {
			return found, "a number in plain decimal digits" + within(tag)
		}
	}
	return "", ""
}

// duration checks a duration. A number without a unit is told from other nonsense.
func duration(n *yaml.Node, tag reflect.StructTag) (found, allowed string) {
	example := "30s"
	if n.Kind != yaml.ScalarNode {
		return show(n, tag), "a duration with a unit, for example " + example
	}
	_, err := parseDuration(n.Value)
	kind := n.ShortTag()
	switch {
	case errors.Is(err, errUnitMissing):
		return show(n, tag) + ", unit missing", "a duration with a unit" + within(tag) + ", for example " + cmp.Or(strings.TrimLeft(clip(n.Value), "+-0"), "1") + "s"
	case err != nil || kind != "!!str":
		return show(n, tag), "a duration in h, m, s or ms" + within(tag) + ", for example " + example
	}
	return "", ""
}

func textAllowed(n *yaml.Node, tag reflect.StructTag, path string) string {
	if words := strings.Fields(tag.Get("words")); len(words) > 0 {
		return either(offeredWords(path, words))
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
		return "text: put it in quotes"
	}
	return "text"
}

// within says the range of a tag, if it has one.
func within(tag reflect.StructTag) string {
	if low, high, ok := strings.Cut(tag.Get("range"), "-"); ok {
		return ", " + low + " to " + high
	}
	return ""
}

// show describes what stands at a node; the value only where it is no secret.
func show(n *yaml.Node, tag reflect.StructTag) string {
	if n.Kind == yaml.SequenceNode {
		return "a list"
	}
	if n.Kind == yaml.MappingNode {
		return "a mapping"
	}
	kind := n.ShortTag()
	noun := map[string]string{"!!int": "number", "!!float": "number", "!!bool": "boolean", "!!timestamp": "date"}[kind]
	switch {
	case kind == "!!null":
		return "nothing"
	case noun == "" && tag.Get("secret") != "":
		return "text"
	case noun == "":
		return quote(n.Value)
	case tag.Get("secret") != "":
		return "a " + noun
	}
	return "the " + noun + " " + clip(n.Value)
}

// clip shows a value without quotes, cut and escaped like quote.
func clip(s string) string { return strings.Trim(quote(s), `"`) }
