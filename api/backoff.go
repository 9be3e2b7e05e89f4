package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxd/outboxd/backoff"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/ledger"
)

// RetryPolicy is when a tool is tried again. Durations carry a unit. In a request
// what is absent is as it is now.
type RetryPolicy struct {
	Backoff     string   `json:"backoff,omitzero"` // exponential, constant, list
	Initial     string   `json:"initial,omitzero"`
	Factor      float64  `json:"factor,omitzero"`
	Max         string   `json:"max,omitzero"`
	Delays      []string `json:"delays,omitzero"`
	Jitter      string   `json:"jitter,omitzero"` // full, equal, none
	MaxAttempts int      `json:"max_attempts,omitzero"`
	MaxAge      string   `json:"max_age,omitzero"`
}

// Backoff is a tool's policy in numbers.
type Backoff struct {
	Tool   string         `json:"tool"`
	Policy RetryPolicy    `json:"policy"`
	Delays []BackoffDelay `json:"delays"` // after the first failure, the second and so on; at most 100
}

// BackoffDelay is the wait after so many failures, and how long after the first
// attempt the next one is then, if attempts took no time. In milliseconds.
type BackoffDelay struct {
	Failures int   `json:"failures"`
	Least    int64 `json:"least_ms"`
	Most     int64 `json:"most_ms"`
	ByLeast  int64 `json:"next_at_least_ms"`
	ByMost   int64 `json:"next_at_most_ms"`
}

// PolicyOf is a retry section of the config as the API has it.
func PolicyOf(r config.Retry) RetryPolicy {
	p := RetryPolicy{Backoff: r.Backoff, Initial: r.Initial.String(), Factor: r.Factor, Max: r.Max.String(),
		Jitter: r.Jitter, MaxAttempts: r.MaxAttempts, MaxAge: r.MaxAge.String()}
	for _, d := range r.Delays {
		p.Delays = append(p.Delays, d.String())
	}
	return p
}

// Or is p where it says something, else q.
func (p RetryPolicy) Or(q RetryPolicy) RetryPolicy {
	r := RetryPolicy{cmp.Or(p.Backoff, q.Backoff), cmp.Or(p.Initial, q.Initial), cmp.Or(p.Factor, q.Factor), cmp.Or(p.Max, q.Max),
		p.Delays, cmp.Or(p.Jitter, q.Jitter), cmp.Or(p.MaxAttempts, q.MaxAttempts), cmp.Or(p.MaxAge, q.MaxAge)}
	if len(r.Delays) == 0 {
		r.Delays = q.Delays
	}
	return r
}

// section is the policy of a tool as the config has it.
func section(r contract.Retry) config.Retry {
	b := r.Backoff
	return config.Retry{Backoff: string(b.Kind), Initial: b.Initial, Factor: b.Factor, Max: b.Max, Delays: b.Delays,
		Jitter: string(b.Jitter), MaxAttempts: r.MaxAttempts, MaxAge: r.MaxAge, MaxLapses: r.MaxLapses, MaxQueries: r.MaxQueries}
}

// over is today's policy with what p says changed, as a config would be checked.
func (p RetryPolicy) over(today contract.Retry) (contract.Retry, error) {
	var wrong []InputError
	parse := func(name, text string) (d time.Duration) {
		if text == "" {
			return 0
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			wrong = append(wrong, InputError{name, "is no duration", "a number with a unit, such as 500ms or 10s"})
		}
		return d
	}
	own := config.Retry{Backoff: p.Backoff, Initial: parse("initial", p.Initial), Factor: p.Factor, Max: parse("max", p.Max),
		Jitter: p.Jitter, MaxAttempts: p.MaxAttempts, MaxAge: parse("max_age", p.MaxAge)}
	for _, text := range p.Delays {
		own.Delays = append(own.Delays, parse("delays", text))
	}
	if len(wrong) > 0 {
		return today, invalid(wrong...)
	}
	defaults := config.Default()
	defaults.Retry = section(today)
	tool, err := defaults.Tool(config.Tool{Name: "simulated", Retry: own})
	if problems, ok := errors.AsType[*config.Problems](err); ok {
		for _, x := range problems.List {
			wrong = append(wrong, InputError{x.Path, x.Found, x.Allowed})
		}
		return today, invalid(wrong...)
	}
	if err != nil {
		return today, fmt.Errorf("complete policy: %w", err)
	}
	reg, err := contract.NewRegistry([]config.Tool{tool})
	if err != nil {
		return today, fmt.Errorf("complete policy: %w", err)
	}
	made, _ := reg.Lookup(tool.Name)
	return made.Retry, nil
}

// longestCurve is how many delays are listed.
const longestCurve = 100

func (s *API) backoff(c *call) (reply, error) {
	tool, found := s.d.Poller.Work().Registry.Lookup(c.PathValue("name"))
	if !found {
		return reply{}, problem("TOOL_UNKNOWN")
	}
	return ok(Backoff{tool.Name, PolicyOf(section(tool.Retry)), curve(tool.Retry)})
}

func curve(r contract.Retry) []BackoffDelay {
	list := []BackoffDelay{}
	var sum [2]time.Duration
	for n := 1; n < r.MaxAttempts && n <= longestCurve; n++ {
		least, most := r.Backoff.Range(n)
		sum[0], sum[1] = min(sum[0]+least, backoff.Limit), min(sum[1]+most, backoff.Limit)
		list = append(list, BackoffDelay{n, least.Milliseconds(), most.Milliseconds(), sum[0].Milliseconds(), sum[1].Milliseconds()})
	}
	return list
}

// SimulateBody is the body of a simulation.
type SimulateBody struct {
	Retry RetryPolicy `json:"retry,omitzero"`
	Since time.Time   `json:"since,omitzero"` // operations accepted since then; absent: the last 100000
}

// Simulation is what the recorded attempts of a tool came to, and what they would
// have come to under another policy.
type Simulation struct {
	Tool      string      `json:"tool"`
	Policy    RetryPolicy `json:"policy"` // that is simulated
	Rounds    int         `json:"rounds"`
	From      time.Time   `json:"from,omitzero"`
	BucketMS  int64       `json:"bucket_ms"` // the time of one value of a series
	Recorded  Outcome     `json:"recorded"`
	Simulated Outcome     `json:"simulated"`
}

// Outcome is what rounds came to.
type Outcome struct {
	Attempts  int   `json:"attempts"`
	Delivered int   `json:"delivered"`
	GivenUp   int   `json:"given_up"` // at a limit
	Rejected  int   `json:"rejected"`
	Unknown   int   `json:"unknown"`          // not sent again by itself
	Open      int   `json:"open"`             // goes on, beyond what is recorded
	HalfBy    int64 `json:"delivered_p50_ms"` // from the first attempt to the delivery
	MostBy    int64 `json:"delivered_p95_ms"`
	LastBy    int64 `json:"delivered_max_ms"`
	Peak      int   `json:"peak_per_second"` // attempts in the busiest second

	ByAttempt []int `json:"delivered_by_attempt"` // at the first attempt, the second and so on
	Load      []int `json:"load"`                 // attempts, one value for each bucket
	Done      []int `json:"delivered_so_far"`     // likewise
}

// buckets is how many values a series has, at most.
const buckets = 120

func (s *API) simulate(c *call) (reply, error) {
	tool, found := s.d.Poller.Work().Registry.Lookup(c.PathValue("name"))
	if !found {
		return reply{}, problem("TOOL_UNKNOWN")
	}
	var body SimulateBody
	if err := c.body(&body); err != nil {
		return reply{}, err
	}
	retry, err := body.Retry.over(tool.Retry)
	if err != nil {
		return reply{}, err
	}
	var rounds []deadletter.Round
	err = s.scan(c, func(v *ledger.View) (err error) {
		rounds, err = deadletter.History(v, tool.Name, body.Since)
		return err
	})
	if err != nil {
		return reply{}, fmt.Errorf("read history: %w", err)
	}
	sim := Simulation{Tool: tool.Name, Policy: PolicyOf(section(retry)), Rounds: len(rounds)}
	sim.fill(deadletter.Recorded(rounds), deadletter.Simulate(rounds, retry))
	return ok(sim)
}

// fill counts both courses over the same time.
func (sim *Simulation) fill(recorded, simulated []deadletter.Course) {
	var last time.Time
	for _, list := range [][]deadletter.Course{recorded, simulated} {
		for _, c := range list {
			if first := c.Attempts[0]; sim.From.IsZero() || first.Before(sim.From) {
				sim.From = first
			}
			if end := c.Attempts[len(c.Attempts)-1]; end.After(last) {
				last = end
			}
		}
	}
	bucket := max(last.Sub(sim.From)/(buckets-1), time.Second).Truncate(time.Millisecond)
	sim.BucketMS = bucket.Milliseconds()
	n := int(last.Sub(sim.From)/bucket) + 1
	sim.Recorded = outcome(recorded, sim.From, bucket, n)
	sim.Simulated = outcome(simulated, sim.From, bucket, n)
}

func outcome(list []deadletter.Course, from time.Time, bucket time.Duration, n int) Outcome {
	o := Outcome{Load: make([]int, n), Done: make([]int, n), ByAttempt: []int{}}
	var waits []time.Duration
	seconds := map[int64]int{}
	for _, c := range list {
		o.Attempts += len(c.Attempts)
		for _, at := range c.Attempts {
			o.Load[at.Sub(from)/bucket]++
			seconds[at.Unix()]++
		}
		o.ends(c)
		if c.End == deadletter.Succeeded {
			waits = append(waits, c.Wait)
			o.Done[c.Attempts[len(c.Attempts)-1].Sub(from)/bucket]++
		}
	}
	for i := 1; i < n; i++ {
		o.Done[i] += o.Done[i-1]
	}
	for _, count := range seconds {
		o.Peak = max(o.Peak, count)
	}
	if slices.Sort(waits); len(waits) > 0 {
		o.HalfBy = waits[(len(waits)-1)/2].Milliseconds()
		o.MostBy = waits[(len(waits)-1)*95/100].Milliseconds()
		o.LastBy = waits[len(waits)-1].Milliseconds()
	}
	return o
}

// ends counts how a course ended. Attempts beyond the hundredth count as it.
func (o *Outcome) ends(c deadletter.Course) {
	switch c.End {
	case deadletter.Succeeded:
		o.Delivered++
		n := min(len(c.Attempts), longestCurve)
		for len(o.ByAttempt) < n {
			o.ByAttempt = append(o.ByAttempt, 0)
		}
		o.ByAttempt[n-1]++
	case deadletter.GaveUp:
		o.GivenUp++
	case deadletter.Refused:
		o.Rejected++
	case deadletter.Doubted:
		o.Unknown++
	default:
		o.Open++
	}
}

// Backoff is a tool's policy in numbers.
func (c *Client) Backoff(ctx context.Context, tool string) (b Backoff, err error) {
	return b, c.call(ctx, "GET", toolPath(tool)+"/backoff", nil, nil, &b)
}

// Simulate replays the recorded attempts of a tool under another policy.
func (c *Client) Simulate(ctx context.Context, tool string, body SimulateBody) (s Simulation, err error) {
	return s, c.call(ctx, "POST", toolPath(tool)+"/simulate", nil, body, &s)
}
