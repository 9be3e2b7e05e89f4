package demo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/audit"
	"github.com/outboxd/outboxd/contract"
)

// found is what came of the stories.
type found struct {
	stories []story
	answers []api.Answer  // of the daemon, by story
	seen    testimony     // of the downstream
	atKill  string        // the status of the killed story when the daemon was killed
	audit   *audit.Report // nil: there was none
	stopped string        // how the daemon ended when it was asked to; empty: it did not
}

// check is one expectation and what was found.
type check struct {
	About string `json:"of"`
	What  string `json:"what"`
	Want  string `json:"expected"`
	Got   string `json:"found"`
}

func (c check) met() bool { return c.Want == c.Got }

// checks compares everything.
func (f found) checks() (list []check) {
	for i, s := range f.stories {
		list = append(list, f.story(s, f.answers[i])...)
	}
	key := f.stories[killed].key
	return append(list,
		check{key, "status at the kill", "in_progress", f.atKill},
		check{"each", "same key each attempt", "yes", f.each(sameKey)},
		check{"each", "same bytes each attempt", "yes", f.each(sameBytes)},
		check{"each", "token rises each attempt", "yes", f.each(rising)},
		check{"file", "audit", "5 checked, 0 wrong", f.audited()},
		check{"outboxd", "stops when asked", "exit status 0", f.stopped},
	)
}

func (f found) story(s story, a api.Answer) []check {
	counts := func(n ...int) string { return strings.Trim(strings.ReplaceAll(fmt.Sprint(n), " ", " / "), "[]") }
	ref := a.StatusRef
	list := []check{
		{s.key, "status", s.status, ending(a)},
		{s.key, "attempts/requests/effects", counts(s.attempts, s.requests, s.effects),
			counts(a.Attempts, len(f.seen.of(ref)), f.seen.effects(ref))},
	}
	if s.questions > 0 {
		list = append(list, check{s.key, "questions", counts(s.questions), counts(f.seen.questions(ref))})
	}
	return list
}

// each says yes, or of which operations a rule about their requests is broken.
func (f found) each(rule func(story, []request) bool) string {
	var broken []string
	for i, s := range f.stories {
		if !rule(s, f.seen.of(f.answers[i].StatusRef)) {
			broken = append(broken, s.key)
		}
	}
	if len(broken) > 0 {
		return "not of " + strings.Join(broken, ", ")
	}
	return "yes"
}

func sameKey(s story, requests []request) bool {
	who := subject()
	key := contract.WireKey(contract.WireScope, contract.Scope{
		Tenant: who.Tenant, Subject: who.Subject, Tool: s.tool, Key: s.key,
	})
	return !slices.ContainsFunc(requests, func(r request) bool { return r.Key != key })
}

func sameBytes(s story, requests []request) bool {
	return !slices.ContainsFunc(requests, func(r request) bool { return r.Body != s.digest() })
}

// rising: the first token is above 0, and each of a key above those before it.
func rising(_ story, requests []request) bool {
	last := int64(0)
	for _, r := range requests {
		if r.Token <= last {
			return false
		}
		last = r.Token
	}
	return true
}

func (f found) audited() string {
	if f.audit == nil {
		return "no audit"
	}
	text := fmt.Sprintf("%d checked, %d wrong", f.audit.Checked.Operations, f.audit.Total)
	for _, finding := range f.audit.Findings[:min(3, len(f.audit.Findings))] {
		text += "; " + finding.Code
	}
	return text
}
