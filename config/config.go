// Package config turns the file format into a typed, immutable Config.
//
// It decides what may stand in the file and in the environment, what a value
// that was not said comes to, and which values contradict each other. It
// promises that nothing is ignored, rewritten or guessed: an unknown key, a
// duration without a unit or a word of another type is refused, every problem
// is told at once with file, line, column and what is allowed, and no message
// holds a secret (URLs, header values, variables and arguments are never
// quoted).
//
// It leaves to others when a file is read again, which of two snapshots an
// attempt sees, and whether the files and programs that are named exist.
package config

import (
	"io/fs"
	"time"
)

// Config is one snapshot. It is never changed after Load, Parse or Default
// returned it; what it holds may be shared and must not be changed either.
//
// The tags are the file format: key is the name in the file, range what a
// number or duration may be (both ends included; of a list, each element),
// words the only words taken (of a mapping, what may stand in its place), must that
// the key has to be said. A field tagged secret is never quoted. The comments are
// what docs/reference/config.md and the schema for editors say of each key.
type Config struct {
	Database   Database    `key:"database"`
	Listen     Listen      `key:"listen"`
	Log        Log         `key:"log"`
	Worker     Worker      `key:"worker"`
	Lease      Lease       `key:"lease"`
	Retry      Retry       `key:"retry"`
	Retention  Retention   `key:"retention"`
	Operators  Operators   `key:"operators"`
	Principals []Principal `key:"principals"`
	Providers  []Provider  `key:"providers"`
	Hook       string      `key:"hook"` // name of a tool that is told of dead, unknown held, breaker, pause and disk; nobody unless said
	Tools      []Tool      `key:"tools"`
}

// Database names the file and how it is opened.
type Database struct {
	Path             string `key:"path"`                 // may be the application's own database; needed to run
	Readers          int    `key:"readers" range:"1-64"` // connections that only read
	ApplicationGroup string `key:"application_group"`    // name of the group of the applications that open the file too: it may write it
	AllowNetworkFS   bool   `key:"allow_network_fs"`     // open it although it lies on a network file system, where SQLite is not safe
}

// Listen says where the daemon answers.
type Listen struct {
	Socket     string      `key:"socket"`      // path of the unix socket; needed to run
	SocketMode fs.FileMode `key:"socket_mode"` // permission bits, as a quoted octal string
}

// Log says how much is logged and in which form.
type Log struct {
	Level  string `key:"level" words:"debug info warn error"` // the least that is logged
	Format string `key:"format" words:"auto json console"`    // auto: console on a terminal, else json
}

// Worker bounds what runs at once.
type Worker struct {
	Concurrency  int           `key:"concurrency" range:"1-10000"`   // attempts at once, over all tools
	PerTool      int           `key:"per_tool" range:"1-10000"`      // the same for a tool that says nothing; half of concurrency unless said
	PollInterval time.Duration `key:"poll_interval" range:"10ms-5m"` // a safety net only: work is noticed at once
	DrainTimeout time.Duration `key:"drain_timeout" range:"10ms-1h"` // how long a stop waits for attempts in flight
	Exclusive    bool          `key:"exclusive"`                     // false: several processes on one file, leases trusted by time
}

// Lease is how long a claim holds without a heartbeat.
type Lease struct {
	TTL       time.Duration `key:"ttl" range:"1s-1h"`         // from the claim or the last heartbeat
	Heartbeat time.Duration `key:"heartbeat" range:"10ms-1h"` // below ttl; a third of it unless said
}

// Operators may see and review everything.
type Operators struct {
	UIDs []int `key:"uids" range:"0-4294967294"` // numbers of users
	GIDs []int `key:"gids" range:"0-4294967294"` // numbers of groups
}

// Principal is a user of this host who may submit.
type Principal struct {
	Name      string   `key:"name" must:"true"`                     // for logs and answers
	UID       int      `key:"uid" range:"0-4294967294" must:"true"` // the number of the user; must be said
	MaySubmit []Scope  `key:"may_submit" must:"true"`               // at least one
	Roles     []string `key:"roles"`                                // what static guards ask for, looked up anew each time
}

// Scope is what a principal may submit for.
type Scope struct {
	Tenant  string   `key:"tenant" must:"true"`  // "*" = any
	Subject string   `key:"subject" must:"true"` // "*" = any
	Tools   []string `key:"tools"`               // names; all tools unless said
}

// Default is what an empty file would come to: every default, no tools, and
// neither a database nor a socket.
func Default() Config {
	c := Config{
		Database:  Database{Readers: 4},
		Listen:    Listen{SocketMode: 0o660},
		Log:       Log{Level: "info", Format: "auto"},
		Worker:    Worker{Concurrency: 32, PollInterval: time.Second, DrainTimeout: 30 * time.Second, Exclusive: true},
		Lease:     Lease{TTL: 30 * time.Second},
		Operators: Operators{UIDs: []int{0}},
		Retention: Retention{
			Delivered: 720 * time.Hour, Discarded: 720 * time.Hour, Refused: 720 * time.Hour,
			Tombstone: 8760 * time.Hour, Every: time.Hour,
		},
		Retry: Retry{
			Backoff: "exponential", Initial: time.Second, Factor: 2, Max: 10 * time.Minute, Jitter: "full",
			MaxAttempts: 12, MaxAge: 72 * time.Hour, MaxLapses: 3, MaxQueries: 20,
		},
	}
	c.derive()
	return c
}

// derive fills what follows from another value where it was not said.
func (c *Config) derive() {
	if c.Worker.PerTool == 0 {
		c.Worker.PerTool = max(1, c.Worker.Concurrency/2)
	}
	if c.Lease.Heartbeat == 0 {
		c.Lease.Heartbeat = c.Lease.TTL / 3
	}
}
