package config

import (
	"io/fs"
	"time"
)

// Tool is a named kind of effect. Its effect class says what the downstream
// allows when an answer was lost: idempotent, it deduplicates on the key, so it is
// sent again; queryable, it can be asked, so it is asked first; opaque, neither, so
// a person is asked; local, the effect is SQL in the same file.
//
// In a Config every field is resolved: what the file did not say is filled from
// retry, worker and the defaults.
type Tool struct {
	Name          string        `key:"name" must:"true"`                                 // 1 to 255 bytes, compared byte for byte; outbox. is kept for built-in tools
	Effect        string        `key:"effect" words:"idempotent queryable opaque local"` // what the downstream allows when an answer was lost; opaque unless said, local with sql
	WireKey       string        `key:"wire_key" words:"scope raw"`                       // scope: the downstream's key is a hash of tenant, subject, tool and key; raw: the caller's as it is; scope unless said
	HTTP          *HTTP         `key:"http"`                                             // this, exec or sql in a file; none for a handler in Go
	Exec          *Exec         `key:"exec"`                                             // instead of http
	SQL           *SQL          `key:"sql"`                                              // instead of http; with effect local
	Query         *Query        `key:"query"`                                            // how to ask what became of a key; without it, it cannot be asked
	Retry         Retry         `key:"retry"`                                            // what is not said here comes from retry
	KeyWindow     time.Duration `key:"key_window" range:"1s-87600h"`                     // how long the downstream remembers a key; for ever unless said
	Timeout       time.Duration `key:"timeout" range:"1ms-24h"`                          // of one attempt, here or in http, exec or sql; 30s unless said
	Concurrency   int           `key:"concurrency" range:"1-10000"`                      // attempts at once; worker.per_tool unless said
	Rate          Rate          `key:"rate"`                                             // attempts per second, minute or hour; unlimited unless said
	Breaker       Breaker       `key:"breaker" words:"off"`                              // off unless said
	UnknownBudget UnknownBudget `key:"unknown_budget" words:"off"`                       // off unless said
	Guards        []Guard       `key:"guards"`                                           // all must agree; they are asked in this order
	Approval      Approval      `key:"approval" words:"none required at_effect"`         // none unless said
	InputSchema   string        `key:"input_schema"`                                     // path of a JSON Schema (2020-12) that arguments must fit
	OutputSchema  string        `key:"output_schema"`                                    // path of a JSON Schema (2020-12) that results must fit
	Revisions     Revisions     `key:"revisions"`                                        // declared instead of derived
}

// Retry says when and how often a tool is tried again.
type Retry struct {
	Backoff     string          `key:"backoff" words:"exponential constant list"`
	Initial     time.Duration   `key:"initial" range:"1ms-1h"`         // the first delay, of constant each
	Factor      float64         `key:"factor" range:"1-100"`           // by which exponential grows
	Max         time.Duration   `key:"max" range:"1ms-720h"`           // no delay is longer
	Delays      []time.Duration `key:"delays" range:"1ms-720h"`        // with backoff list only; the last one repeats
	Jitter      string          `key:"jitter" words:"full equal none"` // how much of a delay is random: all, half, nothing
	MaxAttempts int             `key:"max_attempts" range:"1-100000"`  // failed attempts in a round
	MaxAge      time.Duration   `key:"max_age" range:"1s-87600h"`      // after this, what has failed is given up
	MaxLapses   int             `key:"max_lapses" range:"1-1000"`      // times that the process may die during one operation's attempt
	MaxQueries  int             `key:"max_queries" range:"1-100000"`   // questions without an answer before a person is asked
}

// HTTP is a downstream, or the place where one is asked, behind a URL.
type HTTP struct {
	URL      string        `key:"url" secret:"true" must:"true"` // http or https; a query's holds {key} or {ref}
	Method   string        `key:"method"`                        // POST or PUT, of a query GET; POST unless said
	Timeout  time.Duration `key:"timeout" range:"1ms-24h"`       // another place to say the timeout of what it belongs to
	Headers  []Header      `key:"headers"`                       // sent with every request
	Sign     *Sign         `key:"sign"`                          // not signed unless said
	CAFile   string        `key:"ca_file"`                       // path of PEM certificates to trust instead of the system's; https only
	CertFile string        `key:"cert_file"`                     // path of the client's certificate; with key_file
	KeyFile  string        `key:"key_file"`                      // path of the client's private key; with cert_file
	Proxy    string        `key:"proxy" secret:"true"`           // URL: http, https or socks5; none unless said
}

// Header is sent with every request. Either value or value_file is said.
type Header struct {
	Name      string `key:"name" must:"true"`
	Value     string `key:"value" secret:"true"`
	ValueFile string `key:"value_file"` // path of a file that holds the value
}

// Exec is a downstream, or the way to ask one, that is a program.
type Exec struct {
	Argv     []string      `key:"argv" secret:"true" must:"true"` // the program and its arguments; no shell
	Timeout  time.Duration `key:"timeout" range:"1ms-24h"`        // another place to say the timeout of what it belongs to
	Rejected []int         `key:"rejected" range:"1-255"`         // exit codes: it was refused, nothing was done
	TryAgain []int         `key:"try_again" range:"1-255"`        // exit codes: nothing was done, try again; 75 unless said
	Dir      string        `key:"dir"`                            // working directory; the daemon's unless said
	Env      []EnvVar      `key:"env"`                            // all that the program gets beside OUTBOX_*
	User     string        `key:"user"`                           // name of the user that it runs as, with that user's groups; the daemon's unless said
	Umask    *fs.FileMode  `key:"umask"`                          // a quoted octal string; the daemon's unless said
	Nice     int           `key:"nice" range:"0-19"`              // how far it stands back for other processes
}

// EnvVar is an environment variable of a program. In the file it is a mapping
// of name and value, or the bare name.
type EnvVar struct {
	Name  string `key:"name" must:"true"`
	Value string `key:"value" secret:"true"` // the daemon's own value unless said
}

// Query asks the downstream what became of a key, by one of HTTP and Exec. A tool
// that a program declares may have neither: then the program asks.
type Query struct {
	HTTP      *HTTP         `key:"http"`                       // this or exec
	Exec      *Exec         `key:"exec"`                       // instead of http
	Timeout   time.Duration `key:"timeout" range:"1ms-24h"`    // of one question, here or in http or exec; the tool's timeout unless said
	NotBefore time.Duration `key:"not_before" range:"1ms-24h"` // how long after an attempt's time limit a "not applied" counts; the tool's timeout unless said
}

// Rate is Events per Per; zero is unlimited. In the file: "20/s", "100/m", "5/h".
type Rate struct {
	Events int
	Per    time.Duration
}

// Revisions are declared contract revisions: 1-64 printable ASCII characters
// each, "" = derived from what the revision covers.
type Revisions struct {
	Input    string `key:"input"`
	Output   string `key:"output"`
	Effect   string `key:"effect"`
	Handler  string `key:"handler"`
	Producer string `key:"producer"`
	Policy   string `key:"policy"`
}
