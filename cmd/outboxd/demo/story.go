package demo

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/outboxd/outboxd/api"
)

// story is one operation: what happens to it, and what it must have come to.
type story struct {
	key, tool string
	arguments string // in canonical form, so that the bytes sent can be compared
	plot      string // what happens, in the table
	moral     string // what it showed

	status                      string // as ending has it
	attempts, requests, effects int
	questions                   int
}

// killed is the index of the story in which the daemon is killed.
const killed = 4

// stories returns the five, in the order in which they are submitted.
func stories() []story {
	return []story{
		{
			key: "order-1", tool: "receipt", arguments: `{"order":1,"to":"ann@shop.example"}`,
			plot:  "done, the answer arrives",
			moral: "The usual case: asked once, done once, and the answer is kept as the proof.",

			status: "succeeded", attempts: 1, requests: 1, effects: 1,
		},
		{
			key: "order-2", tool: "courier", arguments: `{"order":2,"street":"Elm 7"}`,
			plot:  "busy twice, then done",
			moral: "The downstream was busy twice (HTTP 429, then 503). Outboxd came back when it was told to.",

			status: "succeeded", attempts: 3, requests: 3, effects: 1,
		},
		{
			key: "order-3", tool: "refund", arguments: `{"cents":4200,"order":3}`,
			plot:  "done, the answer is lost",
			moral: "It was done, but the answer was lost. Outboxd did not refund a second time: it asked, and was told.",

			status: "succeeded (asked)", attempts: 1, requests: 1, effects: 1, questions: 1,
		},
		{
			key: "order-4", tool: "label", arguments: `{"format":"A0","order":4}`,
			plot:  "refused for good",
			moral: "The downstream refused it (HTTP 422) and did nothing. It is not tried again: it waits for a person.",

			status: "dead: rejected", attempts: 1, requests: 1, effects: 0,
		},
		{
			key: "order-5", tool: "parcel", arguments: `{"order":5,"weight":12}`,
			plot:  "outboxd killed in between",
			moral: "Outboxd was killed while the downstream was at work. Started again, it sent the same key and the same bytes; the downstream knew the key and did nothing twice.",

			status: "succeeded", attempts: 2, requests: 2, effects: 1,
		},
	}
}

// subject is on whose behalf everything is submitted.
func subject() *api.Principal { return &api.Principal{Tenant: "shop", Subject: "demo"} }

func (s story) body() api.Case {
	return api.Case{
		Principal:      subject(),
		Call:           api.CaseCall{Tool: s.tool, Arguments: jsontext.Value(s.arguments)},
		IdempotencyKey: s.key,
	}
}

// digest is what the downstream must compute of each body that it receives.
func (s story) digest() string {
	sum := sha256.Sum256([]byte(s.arguments))
	return hex.EncodeToString(sum[:])
}

// ending is how an operation stands, in one phrase.
func ending(a api.Answer) string {
	switch {
	case a.Delivery == "receipt_reconciled":
		return a.Status + " (asked)"
	case a.Reason != "":
		return a.Status + ": " + a.Reason
	}
	return a.Status
}
