package config

import "time"

// SQL is an effect in the database file itself: its statements run in the
// transaction that records the receipt, so both happen or neither does. docs/local.md
// says what they may name.
type SQL struct {
	Statements []string      `key:"statements" secret:"true" must:"true"` // each one statement; they run in this order
	Result     string        `key:"result" secret:"true"`                 // a question that runs after them and gives the result; without it the rows of the last statement do
	Timeout    time.Duration `key:"timeout" range:"1ms-10s"`              // another place to say the tool's, which is 1s for these tools unless said
}

// Guard is a check before an effect: may the principal do this (authorize), does
// it still make sense (validate). It has one of static, exec, http and sql. A
// guard that cannot be asked refuses.
type Guard struct {
	Purpose string        `key:"purpose" words:"authorize validate" must:"true"` // what a refusal means
	Static  *StaticGuard  `key:"static"`                                         // decided by the config alone; for authorize
	Exec    *Exec         `key:"exec"`                                           // exit 0 is yes, 1 is no, anything else an error
	HTTP    *HTTP         `key:"http"`                                           // 2xx is yes, 403 is no, anything else an error
	SQL     *SQLGuard     `key:"sql"`                                            // asks the database file
	Timeout time.Duration `key:"timeout" range:"1ms-24h"`                        // of one question; the tool's timeout unless said
}

// StaticGuard lets those principals pass that have a role.
type StaticGuard struct {
	Roles []string `key:"roles" must:"true"` // one of them is enough; each is a role of some principal
}

// SQLGuard is a question to the database file. It may name what the statements of
// a tool may name.
type SQLGuard struct {
	Select string `key:"select" secret:"true" must:"true"` // a SELECT: a first row whose first column is true is yes, no row or another value is no
}

// Approval says whether a person has to agree. In the file it is the mode, or a
// mapping.
type Approval struct {
	Mode         string        `key:"mode" words:"none required at_effect" must:"true"` // required: before it is worked on; at_effect: and the approval still holds right before the effect; none unless said
	ExpiresAfter time.Duration `key:"expires_after" range:"1s-8760h"`                   // how long an operation waits to be approved before it is discarded, and how long its approval then holds; for ever unless said
}

// Breaker pauses a tool whose downstream fails, and tries with one attempt
// whether it works again. In the file it is off or a mapping.
type Breaker struct {
	Failures int           `key:"failures" range:"1-100000" must:"true"` // so many in a row (not sent, 5xx, time limit) open it
	Window   time.Duration `key:"window" range:"1s-24h"`                 // within this time; 1m unless said
	Cooldown time.Duration `key:"cooldown" range:"100ms-1h"`             // how long it stays open before one attempt tries; 30s unless said
}

// UnknownBudget pauses a tool of which too much ends unknown at once, until a
// person resumes it. In the file it is off or a mapping.
type UnknownBudget struct {
	Count int           `key:"count" range:"1-100000" must:"true"` // more unknown outcomes than these pause it
	Per   time.Duration `key:"per" range:"1s-24h"`                 // within this time; 1h unless said
}

// Sign has requests signed as Standard Webhooks says (webhook-id,
// webhook-timestamp, webhook-signature).
type Sign struct {
	SecretsFile string `key:"secrets_file" must:"true"` // path of a file with one or two secrets, whsec_ and base64 each, a line each: with two, both sign
}

// Retention says how long what is over is kept. What is dead or unknown is never
// purged.
type Retention struct {
	Delivered time.Duration `key:"delivered" range:"1s-876000h"` // delivered operations with their results
	Discarded time.Duration `key:"discarded" range:"1s-876000h"` // discarded operations
	Refused   time.Duration `key:"refused" range:"1s-876000h"`   // refused intake rows
	Tombstone time.Duration `key:"tombstone" range:"1s-876000h"` // how long a purged operation's key is still known
	Every     time.Duration `key:"every" range:"1s-24h"`         // how often is looked what is over
}

// Provider is a profile by which proposals may come: an origin that names no
// profile is refused.
type Provider struct {
	Provider        string `key:"provider" must:"true"`
	APIFamily       string `key:"api_family" must:"true"`
	AdapterRevision string `key:"adapter_revision" must:"true"`
}
