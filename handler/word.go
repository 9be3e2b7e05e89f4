package handler

import (
	"bytes"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/outboxd/outboxd/backoff"
	"github.com/outboxd/outboxd/contract"
)

// spokenness is whether a program said what came of the call.
type spokenness int

const (
	silent  spokenness = iota // the exit status decides
	spoken                    // its last line decides
	garbled                   // it tried to say something that is not understood
)

// word is the last line of a program's output.
type word struct {
	Outcome string
	Reason  jsontext.Value
	Wait    jsontext.Value
	result  []byte
}

// word reads the last line. A line that names an outcome but cannot be read
// (a reason with a stray quote, a line that is too long) is garbled: exit 0
// beside it would turn "rejected" into "succeeded".
func (e ending) word() (word, spokenness) {
	line, headless := e.out.lastLine()
	meant := func() spokenness {
		if (headless || bytes.HasPrefix(line, []byte("{"))) && bytes.Contains(line, []byte(`"outcome"`)) {
			return garbled
		}
		return silent
	}
	if len(line) == 0 {
		return word{}, silent
	}
	if headless {
		return word{}, meant()
	}
	canon, err := contract.CanonicalLimit(line, maxLine)
	if err != nil {
		return word{}, meant()
	}
	var members struct {
		Outcome    jsontext.Value `json:"outcome"`
		Result     jsontext.Value `json:"result"`
		Reason     jsontext.Value `json:"reason"`
		RetryAfter jsontext.Value `json:"retry_after"`
	}
	if canon[0] != '{' || json.Unmarshal(canon, &members) != nil || members.Outcome == nil {
		return word{result: bounded(canon)}, silent
	}
	said := word{Reason: members.Reason, Wait: members.RetryAfter, result: bounded(members.Result)}
	if json.Unmarshal(members.Outcome, &said.Outcome) != nil || !known(said.Outcome) {
		return word{}, garbled
	}
	return said, spoken
}

func bounded(result []byte) []byte {
	if len(result) == 0 || len(result) > MaxResult {
		return nil
	}
	return result
}

func known(outcome string) bool {
	switch outcome {
	case "applied", "rejected", "retry", "unknown", "not_applied", "in_progress", "conflict":
		return true
	}
	return false
}

// observed reads an outcome as that of an effect. not_applied and conflict are
// answers to questions; of an effect they prove nothing.
func (w word) observed() Observed {
	switch w.Outcome {
	case "applied":
		return Succeeded
	case "rejected":
		return Rejected
	case "retry":
		return TryAgain
	case "in_progress":
		return InProgress
	}
	return MayHaveHappened
}

// found reads an outcome as the answer to a question. rejected, retry and
// unknown speak of the question itself.
func (w word) found() Found {
	switch w.Outcome {
	case "applied":
		return Applied
	case "not_applied":
		return NotApplied
	case "in_progress":
		return InProgress
	case "conflict":
		return Conflict
	}
	return NoAnswer
}

func (w word) reason() string {
	var text string
	if len(w.Reason) == 0 || json.Unmarshal(w.Reason, &text) != nil {
		return ""
	}
	return text
}

// retryAfter reads seconds as a number, a duration with a unit, or any form of
// the HTTP header.
func (w word) retryAfter() (time.Duration, bool) {
	if len(w.Wait) == 0 {
		return 0, false
	}
	text := string(w.Wait)
	if w.Wait.Kind() == '"' && json.Unmarshal(w.Wait, &text) != nil {
		return 0, false
	}
	if d, err := time.ParseDuration(text); err == nil {
		return min(max(d, 0), backoff.Limit), true
	}
	if d, err := time.ParseDuration(text + "s"); err == nil {
		return min(max(d, 0), backoff.Limit), true
	}
	return backoff.RetryAfter(text, time.Now())
}

// envelope is the one line that a program reads.
func envelope(c Call) ([]byte, error) {
	head, err := json.Marshal(struct {
		StatusRef string `json:"status_ref"`
		Tool      string `json:"tool"`
		Tenant    string `json:"tenant_id"`
		Subject   string `json:"subject_id"`
		Key       string `json:"idempotency_key"`
		WireKey   string `json:"wire_key"`
		Attempt   int    `json:"attempt"`
		Token     int64  `json:"fencing_token"`
		Purpose   string `json:"purpose"`
	}{c.StatusRef, c.Tool, c.Tenant, c.Subject, c.Key, c.WireKey, c.Attempt, c.Token, string(c.Purpose)})
	if err != nil {
		return nil, err
	}
	// The arguments go out as they are stored, byte for byte.
	line := append(head[:len(head)-1], `,"arguments":`...)
	line = append(line, c.Arguments...)
	return append(line, '}', '\n'), nil
}
