package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ranges checks every value under v against the range and words of its tag. A
// zero value that was not said is left to the defaults.
func (r *report) ranges(v reflect.Value, path string) {
	names, _ := fieldsOf(v.Type())
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if slices.Contains(names, f.Tag.Get("key")) {
			r.ranged(v.Field(i), f.Tag, join(path, f.Tag.Get("key")))
		}
	}
}

func (r *report) ranged(v reflect.Value, tag reflect.StructTag, path string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && v.Elem().Kind() == reflect.Struct {
			r.ranges(v.Elem(), path)
		}
	case reflect.Struct:
		r.ranges(v, path)
	case reflect.Slice:
		for i := range v.Len() {
			r.element(v.Index(i), tag, fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		if !v.IsZero() || r.said(path) {
			r.element(v, tag, path)
		}
	}
}

// element checks one value, whether it was said or not.
func (r *report) element(v reflect.Value, tag reflect.StructTag, path string) {
	if v.Kind() == reflect.Struct {
		r.ranges(v, path)
		return
	}
	if words := strings.Fields(tag.Get("words")); len(words) > 0 {
		r.worded(v.String(), words, path)
	}
	if low, high, ok := strings.Cut(tag.Get("range"), "-"); ok && !inRange(v, low, high) {
		r.breaks(path, shown(v), low+" to "+high)
	}
}

func (r *report) worded(value string, words []string, path string) {
	words = offeredWords(path, words)
	switch {
	case slices.Contains(words, value):
	case !offered(path + "=" + value):
		r.breaks(path, value+", which is "+notYet, either(words))
	default:
		allowed := either(words)
		if near := suggest(value, words); near != "" {
			allowed += "; did you mean " + near + "?"
		}
		r.breaks(path, quote(value), allowed)
	}
}

// inRange is false for what cannot be compared, NaN among it.
func inRange(v reflect.Value, low, high string) bool {
	switch v.Kind() {
	case reflect.Float64:
		return v.Float() >= bound(low) && v.Float() <= bound(high)
	case reflect.Int:
		return v.Int() >= int64(bound(low)) && v.Int() <= int64(bound(high))
	default:
		shortest, _ := time.ParseDuration(low)
		longest, _ := time.ParseDuration(high)
		return v.Int() >= int64(shortest) && v.Int() <= int64(longest)
	}
}

func bound(text string) float64 {
	f, _ := strconv.ParseFloat(text, 64)
	return f
}

func shown(v reflect.Value) string {
	if d, ok := v.Interface().(time.Duration); ok {
		return brief(d)
	}
	return fmt.Sprint(v.Interface())
}

// brief writes a duration without its zero parts: 10m, not 10m0s.
func brief(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
