package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError: the command line is not one of ours. Its message has our words
// only: what was given may be a secret in the wrong place.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

// misused is what to say of an error that the parser of the command line found
// at a command, in the place of its own words, which repeat what was given.
func misused(c *cobra.Command, err error) error {
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return &usageError{"--" + e.GetFlag().Name + " takes " + taken(e.GetFlag())}
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return &usageError{"--" + e.GetFlag().Name + " needs a value: it takes " + taken(e.GetFlag())}
	}
	_, unknown := errors.AsType[*pflag.NotExistError](err)
	_, malformed := errors.AsType[*pflag.InvalidSyntaxError](err)
	if unknown || malformed {
		return &usageError{c.CommandPath() + " takes these flags: " + flagsOf(c)}
	}
	if c.HasAvailableSubCommands() {
		return commandNeeded(c)
	}
	return &usageError{"the command is " + c.UseLine()}
}

// taken is what a flag takes, by the type of its value.
func taken(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool":
		return "true or false"
	case "int", "int64":
		return "a whole number"
	case "duration":
		return "a duration with a unit, such as 500ms or 10s"
	}
	return "text"
}

func flagsOf(c *cobra.Command) string {
	var names []string
	add := func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	}
	c.NonInheritedFlags().VisitAll(add)
	c.InheritedFlags().VisitAll(add)
	return strings.Join(names, ", ")
}

// commandNeeded names the commands below one that does nothing itself.
func commandNeeded(c *cobra.Command) error {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return &usageError{c.CommandPath() + " takes one of these commands: " + strings.Join(names, ", ")}
}
