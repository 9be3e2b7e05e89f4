package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// What stands in the wrong place may be a secret.
func TestUsageErrorsNameWhatIsAllowedAndNeverWhatWasGiven(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"pw-7", "outboxd takes one of these commands: approve, audit, "},
		{`{"secret":"pw-7"}`, "outboxd takes one of these commands: "},
		{"tool pw-7", "outboxd tool takes one of these commands: list, pause, resume"},
		{"config pw-7 x", "outboxd config takes one of these commands: check"},
		{`submit --tool a --key b {"secret":"pw-7"}`, "the command is outboxd submit --tool T --key K [flags]"},
		{"config check /etc/pw-7", "the command is outboxd config check [flags]"},
		{"tool pause a pw-7", "the command is outboxd tool pause T [flags]"},
		{"tool pause", "the command is outboxd tool pause T [flags]"},
		{"status a pw-7", "the command is outboxd status REF | --tool T --key K [flags]"},
		{"status a --key pw-7", "status takes a status_ref, or --tool and --key"},
		{"completion bash pw-7", "the command is outboxd completion bash"},
		{`submit --turn {"pw-7":1}`, "--turn takes a whole number"},
		{"submit --wait pw-7", "--wait takes a duration with a unit, such as 500ms or 10s"},
		{"list --limit pw-7", "--limit takes a whole number"},
		{"list --limit=9999999999999999999999", "--limit takes a whole number"},
		{"list --no-color=pw-7", "--no-color takes true or false"},
		{`list --state "pw-7`, "--state takes text"},
		{"list --state pw-7", "--state takes waiting, "},
		{"list -o pw-7", "-o takes table or json"},
		{"list --limit", "--limit needs a value: it takes a whole number"},
		{"list -o", "--output needs a value: it takes text"},
		{"list --secret-pw-7=x", "outboxd list takes these flags: --after, --help, --limit, --state, --tool, --config, "},
		{"list -pw-7", "outboxd list takes these flags: "},
		{"list --=pw-7", "outboxd list takes these flags: "},
		{"demo --pw-7", "outboxd demo takes these flags: --help, --keep, --config, "},
	} {
		status, stdout, stderr := command(context.Background(), strings.Fields(c.line)...)
		var got struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal([]byte(stderr), &got); err != nil {
			t.Errorf("%s: stderr is %q, want one line of JSON", c.line, stderr)
		}
		if status != exitFailed || got.Error.Code != "USAGE_ERROR" || !strings.HasPrefix(got.Error.Message, c.want) {
			t.Errorf("%s: exit status %d, %s %q, want 2, USAGE_ERROR %q", c.line, status, got.Error.Code, got.Error.Message, c.want)
		}
		for _, given := range []string{"pw-7", "secret", "9999"} {
			if strings.Contains(stdout+stderr, given) {
				t.Errorf("%s: %q is repeated: %s%s", c.line, given, stdout, stderr)
			}
		}
	}
}
