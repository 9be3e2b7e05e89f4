package api

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxd/outboxd/entry"
)

// Filter selects operations. The zero value is all that the caller may see.
type Filter struct {
	States          []entry.State // none: all
	Tool            string
	Key             string
	Tenant, Subject string // with Key; empty: any that the caller may see
	After           string // the status_ref that the page begins behind
	Limit           int    // 1 to 1000; 0: 50
}

// The size of a page.
const (
	defaultLimit = 50
	maxLimit     = 1000
)

func (f Filter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"tool": f.Tool, "key": f.Key, "tenant": f.Tenant, "subject": f.Subject, "after": f.After,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for _, s := range f.States {
		q.Add("state", string(s))
	}
	if f.Limit != 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	return q
}

// query is the request's query, if it has only these names: a misspelt filter
// must not mean everything.
func (c *call) query(names ...string) (url.Values, error) {
	if c.URL.RawQuery == "" {
		return nil, nil
	}
	q, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return nil, invalid(InputError{"", "the query cannot be read", "name=value pairs, percent-encoded"})
	}
	for name, values := range q {
		if !slices.Contains(names, name) {
			return nil, invalid(InputError{"", "a query parameter that this call does not have", strings.Join(names, ", ")})
		}
		if len(values) > 1 && name != "state" {
			return nil, invalid(InputError{name, "is given twice", "once"})
		}
	}
	return q, nil
}

func (c *call) limit(q url.Values) (int, error) {
	if q.Get("limit") == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(q.Get("limit"))
	if err != nil || n < 1 || n > maxLimit {
		return 0, invalid(InputError{"limit", "is no number, or out of range", "1 to 1000"})
	}
	return n, nil
}

func (c *call) filter() (f Filter, err error) {
	q, err := c.query("state", "tool", "key", "tenant", "subject", "after", "limit")
	if err != nil {
		return f, err
	}
	if f.Limit, err = c.limit(q); err != nil {
		return f, err
	}
	for _, word := range strings.Split(strings.Join(q["state"], ","), ",") {
		if word == "" {
			continue
		}
		if !slices.Contains(entry.States, entry.State(word)) {
			return f, invalid(InputError{"state", "no such state", words(entry.States)})
		}
		f.States = append(f.States, entry.State(word))
	}
	f.Tool, f.Key, f.After = q.Get("tool"), q.Get("key"), q.Get("after")
	f.Tenant, f.Subject = q.Get("tenant"), q.Get("subject")
	if f.Key == "" && f.Tenant+f.Subject != "" {
		return f, invalid(InputError{"key", "is absent", "a key beside tenant and subject"})
	}
	if only, one := c.access.only(c.peer); one && f.Key != "" && f.Tenant+f.Subject == "" && !c.access.operator(c.peer) {
		f.Tenant, f.Subject = only.Tenant, only.Subject
	}
	return f, nil
}

func words(states []entry.State) string {
	list := make([]string, len(states))
	for i, s := range states {
		list[i] = string(s)
	}
	return strings.Join(list, ", ")
}
