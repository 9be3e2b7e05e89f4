package config

import "time"

// Tool is a named kind of effect. In a Config every field is resolved: what the
// file did not say is filled from retry, worker and the defaults.
type Tool struct {
	Name        string        `key:"name"`
	Effect      string        `key:"effect" words:"idempotent queryable opaque"` // opaque unless said
	WireKey     string        `key:"wire_key" words:"scope raw"`                 // scope unless said
	HTTP        *HTTP         `key:"http"`                                       // this or Exec in a file; neither for a handler in Go
	Exec        *Exec         `key:"exec"`
	Query       *Query        `key:"query"` // nil = cannot be asked
	Retry       Retry         `key:"retry"`
	KeyWindow   time.Duration `key:"key_window" range:"1s-87600h"` // how long the downstream remembers a key; 0 = for ever
	Timeout     time.Duration `key:"timeout" range:"1ms-24h"`      // of one attempt, wherever it was said; 30 s unless said
	Concurrency int           `key:"concurrency" range:"1-10000"`  // worker.per_tool unless said
	Rate        Rate          `key:"rate"`                         // zero = unlimited
	Revisions   Revisions     `key:"revisions"`
}

// Retry says when and how often a tool is tried again.
type Retry struct {
	Backoff     string          `key:"backoff" words:"exponential constant list"`
	Initial     time.Duration   `key:"initial" range:"1ms-1h"`
	Factor      float64         `key:"factor" range:"1-100"`
	Max         time.Duration   `key:"max" range:"1ms-720h"`    // no delay is longer
	Delays      []time.Duration `key:"delays" range:"1ms-720h"` // with backoff list only; the last one repeats
	Jitter      string          `key:"jitter" words:"full equal none"`
	MaxAttempts int             `key:"max_attempts" range:"1-100000"`
	MaxAge      time.Duration   `key:"max_age" range:"1s-87600h"`
	MaxLapses   int             `key:"max_lapses" range:"1-1000"`
	MaxQueries  int             `key:"max_queries" range:"1-100000"`
}

// HTTP is a downstream, or the place where one is asked, behind a URL.
type HTTP struct {
	URL      string        `key:"url" secret:"true"`       // http or https; a query's holds {key} or {ref}
	Method   string        `key:"method"`                  // POST or PUT, of a query GET; resolved
	Timeout  time.Duration `key:"timeout" range:"1ms-24h"` // another place to say the tool's or the query's; 0 once resolved
	Headers  []Header      `key:"headers"`
	CAFile   string        `key:"ca_file"`
	CertFile string        `key:"cert_file"`
	KeyFile  string        `key:"key_file"`
	Proxy    string        `key:"proxy" secret:"true"` // URL: http, https or socks5
}

// Header is sent with every request. Either Value or ValueFile is set.
type Header struct {
	Name      string `key:"name"`
	Value     string `key:"value" secret:"true"`
	ValueFile string `key:"value_file"` // path of a file that holds the value
}

// Exec is a downstream, or the way to ask one, that is a program.
type Exec struct {
	Argv     []string      `key:"argv" secret:"true"`
	Timeout  time.Duration `key:"timeout" range:"1ms-24h"` // as HTTP.Timeout
	Rejected []int         `key:"rejected" range:"1-255"`  // exit codes: it was refused, nothing was done
	TryAgain []int         `key:"try_again" range:"1-255"` // exit codes: nothing was done, try again; 75 unless said
	Dir      string        `key:"dir"`                     // working directory; "" = the daemon's
	Env      []EnvVar      `key:"env"`                     // all that the program gets beside OUTBOX_*
}

// EnvVar is an environment variable of a program. In the file it is a mapping
// of name and value, or the bare name.
type EnvVar struct {
	Name  string `key:"name"`
	Value string `key:"value" secret:"true"` // "" = the daemon's own value is passed through
}

// Query asks the downstream what became of a key, by one of HTTP and Exec. A tool
// that a program declares may have neither: then the program asks.
type Query struct {
	HTTP      *HTTP         `key:"http"`
	Exec      *Exec         `key:"exec"`
	Timeout   time.Duration `key:"timeout" range:"1ms-24h"`    // the tool's timeout unless said
	NotBefore time.Duration `key:"not_before" range:"1ms-24h"` // the tool's timeout unless said
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
