package main

import (
	"fmt"
	"time"
)

// group is what runs in turn: its specs are repeated together.
type group struct {
	name   string
	specs  []spec
	most   int  // repetitions at most; 0: as many as asked for
	daemon bool // needs the built daemon
}

// sizes of a plan.
type sizes struct {
	drain, accept, socket, latency, memory int
	many, past                             int // delivered operations in the file
	window                                 time.Duration
}

var (
	full = sizes{drain: 20_000, accept: 20_000, socket: 20_000, latency: 500, memory: 200_000,
		many: 1_000_000, past: 100_000, window: 10 * time.Second}
	small = sizes{drain: 4_000, accept: 4_000, socket: 2_000, latency: 50, memory: 5_000,
		many: 20_000, past: 20_000, window: 2 * time.Second}
)

// The names of the specs, as the figures refer to them.
const (
	drainIdempotent = "drain, idempotent"
	drainQueryable  = "drain, queryable"
	drainYardstickN = "drain, yardstick"
	localN          = "local effects"
	localSession    = "local effects, with a session"
	drainMany       = "drain, with delivered rows"
	drainFew        = "drain, without"
	acceptN         = "accept"
	acceptYard      = "accept, yardstick"
	latencyN        = "latency, idempotent"
	latencyQuery    = "latency, queryable"
	latencyYard     = "latency, yardstick"
	socket8         = "socket, 8 clients"
	socket16        = "socket, 16 clients"
	idleN           = "idle"
	memoryN         = "memory"
)

func sizesOf(quick bool) sizes {
	if quick {
		return small
	}
	return full
}

// String says in words what the table leaves out.
func (n sizes) String() string {
	return fmt.Sprintf("Operations: %d drained, %d accepted, %d over the socket, %d one at a time,\n"+
		"%d of 4 KB for the memory. Delivered rows in the file: %d for the drain with\n"+
		"them, %d while idle, there beside %d due in an hour and %d of a paused tool; idle is\nwatched for %s.",
		n.drain, n.accept, n.socket, n.latency, n.memory, n.many, n.past, later, paused, n.window)
}

func plan(n sizes) []group {
	return []group{
		{name: "drain", specs: []spec{
			{Name: drainIdempotent, Measure: "drain", N: n.drain, Effect: "idempotent"},
			{Name: drainYardstickN, Measure: "drain yardstick", N: n.drain},
			{Name: drainQueryable, Measure: "drain", N: n.drain, Effect: "queryable"},
		}},
		{name: "local", specs: []spec{
			{Name: localN, Measure: "local", N: n.drain},
			{Name: localSession, Measure: "local", N: n.drain, Session: true},
		}},
		{name: "accept", specs: []spec{
			{Name: acceptN, Measure: "accept", N: n.accept, Clients: 16, Effect: "idempotent"},
			{Name: acceptYard, Measure: "accept yardstick", N: n.accept, Clients: 16},
		}},
		{name: "latency", specs: []spec{
			{Name: latencyN, Measure: "latency", N: n.latency, Effect: "idempotent"},
			{Name: latencyYard, Measure: "latency yardstick", N: n.latency},
			{Name: latencyQuery, Measure: "latency", N: n.latency, Effect: "queryable"},
		}},
		{name: "many", specs: []spec{
			{Name: drainMany, Measure: "drain", N: n.drain, Effect: "idempotent", Done: n.many},
			{Name: drainFew, Measure: "drain", N: n.drain, Effect: "idempotent"},
		}},
		{name: "socket", daemon: true, specs: []spec{
			{Name: socket8, Measure: "socket", N: n.socket, Clients: 8},
			{Name: socket16, Measure: "socket", N: n.socket, Clients: 16},
		}},
		{name: "idle", daemon: true, most: 3, specs: []spec{
			{Name: idleN, Measure: "idle", Done: n.past, Window: n.window},
		}},
		{name: "memory", daemon: true, most: 1, specs: []spec{
			{Name: memoryN, Measure: "memory", N: n.memory, Clients: 8, Bytes: 4096},
		}},
	}
}

// figure is one line of the report: a metric of a spec, what stands beside it
// and what is required of it.
type figure struct {
	name   string
	of     string // spec
	metric string
	unit   string
	beside string // spec; "": nothing
	need   []need
}

// need is one requirement: of the median or, with ratio, of the median of the
// pairwise ratios to what stands beside.
type need struct {
	atLeast, below float64 // 0: no such bound
	ratio          bool
	none           bool // nothing at all
}

var figures = []figure{
	{"drain, idempotent, 64 slots", drainIdempotent, "per_s", "/s", drainYardstickN, []need{{atLeast: 12_000}, {atLeast: .4, ratio: true}}},
	{"– CPU for each", drainIdempotent, "cpu_us", "µs", drainYardstickN, nil},
	{"drain, queryable, 64 slots", drainQueryable, "per_s", "/s", drainYardstickN, []need{{atLeast: 8_000}}},
	{"– CPU for each", drainQueryable, "cpu_us", "µs", drainYardstickN, nil},
	{"local effects, 64 slots", localN, "per_s", "/s", drainYardstickN, []need{{atLeast: 8_000}}},
	{"– CPU for each", localN, "cpu_us", "µs", drainYardstickN, nil},
	{"local effects that name a session, beside none", localSession, "per_s", "/s", localN, []need{{atLeast: .715, ratio: true}}},
	{"– CPU for each", localSession, "cpu_us", "µs", localN, nil},
	{"accept, 16 in the process", acceptN, "per_s", "/s", acceptYard, []need{{atLeast: 12_000}}},
	{"– CPU for each", acceptN, "cpu_us", "µs", acceptYard, nil},
	{"– a call, median", acceptN, "call_p50", "ms", acceptYard, nil},
	{"– a call, p99", acceptN, "call_p99", "ms", acceptYard, nil},
	{"call of accept to handler start, median", latencyN, "whole_p50", "ms", latencyYard, []need{{below: 2}}},
	{"– p95", latencyN, "whole_p95", "ms", latencyYard, nil},
	{"– p99", latencyN, "whole_p99", "ms", latencyYard, nil},
	{"return of accept to handler start, median", latencyN, "after_p50", "ms", latencyYard, nil},
	{"call to handler start, queryable, median", latencyQuery, "whole_p50", "ms", latencyYard, nil},
	{"drain with delivered rows in the file, beside none", drainMany, "per_s", "/s", drainFew, []need{{atLeast: .85, ratio: true}}},
	{"accept over the socket, 8 clients", socket8, "per_s", "/s", "", []need{{atLeast: 4_000}}},
	{"– a call, median", socket8, "call_p50", "ms", "", nil},
	{"– a call, p99", socket8, "call_p99", "ms", "", nil},
	{"– the daemon's CPU for each", socket8, "daemon_us", "µs", "", nil},
	{"accept over the socket, 16 clients", socket16, "per_s", "/s", "", []need{{atLeast: 4_000}}},
	{"– a call, p99", socket16, "call_p99", "ms", "", nil},
	{"idle: CPU of one core", idleN, "cpu_pct", "%", "", []need{{below: .3}}},
	{"idle: resident memory", idleN, "rss", "MB", "", []need{{below: 45}}},
	{"idle: written in the window", idleN, "written", "bytes", "", []need{{none: true}}},
	{"memory: growth after the first tenth of the operations", memoryN, "growth", "MB", "", []need{{below: 20}}},
	{"– the most", memoryN, "most", "MB", "", nil},
	{"– submitted meanwhile", memoryN, "per_s", "/s", "", nil},
}
