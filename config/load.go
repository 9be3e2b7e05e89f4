package config

import (
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

// mostBytes bounds a config file.
const mostBytes = 1 << 20

// keyDelimiter joins the keys of a path for viper. No key can hold it, so a dot
// in a name never splits it.
const keyDelimiter = "\x00"

// Load reads the file at path afresh and returns its Config. env is the
// environment as os.Environ gives it: variables named OUTBOXD_ and the path in
// upper case with underscores set scalars outside lists, and win over the file;
// an empty one counts as not set.
//
// The error is a *Problems when the content is wrong, else the error of reading.
func Load(path string, env []string) (*Config, error) {
	data, err := Read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, env)
}

// Read reads a file as Load does: of one that is too large, just so much that Parse
// will refuse it.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	defer func() { _ = f.Close() }() // only read: nothing can be lost
	data, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	return data, nil
}

// Parse is Load for content that was already read; name stands for the file in
// the problems. The error is always a *Problems.
func Parse(name string, data []byte, env []string) (*Config, error) {
	c, _, err := parse(name, data, env)
	return c, err
}

// parse also returns where everything was said.
func parse(name string, data []byte, env []string) (*Config, *report, error) {
	r := newReport(name)
	root := r.document(data)
	usable := root != nil && r.value(root, reflect.TypeFor[Config](), "", "")
	overrides := r.environment(env)
	if !usable || r.full() {
		return nil, nil, problemsOf(r.problems)
	}
	c, err := decode(root, overrides)
	if err != nil {
		r.refuse("", "a file that cannot be decoded: "+clip(err.Error()), "the keys and types of the reference")
		return nil, nil, problemsOf(r.problems)
	}
	r.config(c)
	if err := problemsOf(r.problems); err != nil {
		return nil, nil, err
	}
	return c, r, nil
}

// decode puts what is said over the defaults: the file, then the environment.
// Values that follow from others stay zero where they were not said.
func decode(root *yaml.Node, overrides map[string]any) (*Config, error) {
	var settings map[string]any
	if err := root.Decode(&settings); err != nil {
		return nil, err
	}
	v := viper.NewWithOptions(viper.KeyDelimiter(keyDelimiter))
	if err := v.MergeConfigMap(settings); err != nil {
		return nil, err
	}
	for key, value := range overrides {
		v.Set(key, value)
	}
	c := Default()
	c.Worker.PerTool, c.Lease.Heartbeat = 0, 0
	if err := v.UnmarshalExact(&c, strict); err != nil {
		return nil, err
	}
	return &c, nil
}

func strict(d *mapstructure.DecoderConfig) {
	d.TagName = "key"
	d.WeaklyTypedInput = false
	d.MatchName = func(key, field string) bool { return key == field }
	d.DecodeHook = fromText
}

// fromText decodes the types that are written as text. A number is no duration.
func fromText(from, to reflect.Type, data any) (any, error) {
	text, isText := data.(string)
	switch to {
	case durationType:
		if !isText {
			return nil, fmt.Errorf("a duration of type %s", from)
		}
		return parseDuration(text)
	case modeType:
		return parseMode(text)
	case rateType:
		return parseRate(text)
	case envVarType:
		if isText {
			return EnvVar{Name: text}, nil
		}
	case approvalType:
		if isText {
			return Approval{Mode: text}, nil
		}
	case breakerType, budgetType:
		if isText {
			return reflect.Zero(to).Interface(), nil // off
		}
	}
	return data, nil
}
