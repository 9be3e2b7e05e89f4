package demo

import (
	"slices"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/audit"
	"github.com/outboxd/outboxd/contract"
)

// perfect is what a run finds in which all went well.
func perfect() found {
	f := found{
		stories: stories(), atKill: "in_progress", stopped: "exit status 0",
		audit: &audit.Report{Checked: audit.Checked{Operations: 5}},
		seen:  testimony{Effects: map[string]int{}, Questions: map[string]int{}},
	}
	token := int64(0)
	for _, s := range f.stories {
		ref := "ref-" + s.key
		key := contract.WireKey(contract.WireScope, contract.Scope{Tenant: "shop", Subject: "demo", Tool: s.tool, Key: s.key})
		for n := range s.requests {
			token++
			f.seen.Requests = append(f.seen.Requests, request{ref, key, n + 1, token, s.digest()})
		}
		f.seen.Effects[key], f.seen.Questions[key] = s.effects, s.questions
		a := api.Answer{StatusRef: ref, Attempts: s.attempts}
		a.Status, a.Reason, _ = strings.Cut(s.status, ": ")
		if s.questions > 0 {
			a.Status, a.Delivery = "succeeded", "receipt_reconciled"
		}
		f.answers = append(f.answers, a)
	}
	return f
}

func unmet(f found) (list []string) {
	for _, c := range f.checks() {
		if !c.met() {
			list = append(list, c.About+" "+c.What)
		}
	}
	return list
}

func TestEachExpectationCanFail(t *testing.T) {
	const counts = " attempts/requests/effects"
	last := func(f *found) *request { return &f.seen.Requests[len(f.seen.Requests)-1] }
	key := func(f *found, i int) string { return f.seen.of(f.answers[i].StatusRef)[0].Key }
	for _, c := range []struct {
		name  string
		spoil func(*found)
		want  []string
	}{
		{"nothing is wrong", func(*found) {}, nil},
		{"another status", func(f *found) { f.answers[0].Status = "pending" }, []string{"order-1 status"}},
		{"dead for another reason", func(f *found) { f.answers[3].Reason = "too_old" }, []string{"order-4 status"}},
		{"delivered without asking", func(f *found) { f.answers[2].Delivery = "local_replay" }, []string{"order-3 status"}},
		{"an attempt too many", func(f *found) { f.answers[1].Attempts++ }, []string{"order-2" + counts}},
		{"a request that outboxd does not know of", func(f *found) {
			r := *last(f)
			r.Token++
			f.seen.Requests = append(f.seen.Requests, r)
		}, []string{"order-5" + counts}},
		{"an effect too many", func(f *found) { f.seen.Effects[key(f, 4)]++ }, []string{"order-5" + counts}},
		{"an effect of a refused one", func(f *found) { f.seen.Effects[key(f, 3)]++ }, []string{"order-4" + counts}},
		{"a question too many", func(f *found) { f.seen.Questions[key(f, 2)]++ }, []string{"order-3 questions"}},
		{"killed when nothing was under way", func(f *found) { f.atKill = "pending" }, []string{"order-5 status at the kill"}},
		{"another key at the second attempt", func(f *found) {
			f.seen.Effects["other"] = 1
			last(f).Key = "other"
		}, []string{"order-5" + counts, "each same key each attempt"}},
		{"other bytes at the second attempt", func(f *found) { last(f).Body = "00" }, []string{"each same bytes each attempt"}},
		{"the same token again", func(f *found) { last(f).Token-- }, []string{"each token rises each attempt"}},
		{"a finding", func(f *found) {
			f.audit.Total, f.audit.Findings = 1, []audit.Finding{{Code: audit.ReceiptMissing}}
		}, []string{"file audit"}},
		{"no audit", func(f *found) { f.audit = nil }, []string{"file audit"}},
		{"cut off at the end", func(f *found) { f.stopped = "exit status 3" }, []string{"outboxd stops when asked"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := perfect()
			c.spoil(&f)
			if got := unmet(f); !slices.Equal(got, c.want) {
				t.Errorf("unmet: %q, want %q", got, c.want)
			}
		})
	}
}

func TestChildrenGetNothingThatIsForTheRealDaemon(t *testing.T) {
	got := environment([]string{
		"PATH=/bin", "OUTBOXD_DATABASE_PATH=/var/lib/outbox.db", "NOTIFY_SOCKET=/run/n",
		"LISTEN_FDS=1", "WATCHDOG_USEC=1", "OUTBOX=kept",
	})
	if want := []string{"PATH=/bin", "OUTBOX=kept"}; !slices.Equal(got, want) {
		t.Errorf("environment is %q, want %q", got, want)
	}
}

func TestLinesFitTheTerminal(t *testing.T) {
	const coloured = "\x1b[31mred\x1b[0m and more"
	for _, c := range []struct {
		line  string
		width int
		want  string
	}{
		{"short", 10, "short"},
		{"exactly", 7, "exactly"},
		{"too long", 3, "too\x1b[0m"},
		{coloured, 12, coloured},
		{coloured, 5, "\x1b[31mred\x1b[0m a\x1b[0m"},
	} {
		if got := fit(c.line, c.width); got != c.want {
			t.Errorf("fit(%q, %d) = %q, want %q", c.line, c.width, got, c.want)
		}
	}
}

func TestEverythingThatIsPrintedFitsEightyColumns(t *testing.T) {
	var text strings.Builder
	s := newScreen(Options{Out: &text}, stories())
	s.open(4194304, 4194303)
	s.update([]row{{"in_progress", 1, 0}, {"in_progress", 10, 1}, {}, {}, {}})
	s.write(strings.Join(s.table(), "\n") + "\n")
	s.say("said")
	s.verdict(perfect().checks())
	s.end("It took %d s.", 1)
	for line := range strings.Lines(text.String()) {
		if n := len(line) - 1; n > 80 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	if strings.ContainsRune(text.String(), '\x1b') {
		t.Error("escape sequences although it is no terminal")
	}
}

func TestWhatIsWrongStandsOut(t *testing.T) {
	var text strings.Builder
	s := newScreen(Options{Out: &text}, stories())
	f := perfect()
	f.answers[4].Attempts = 3
	if wrong := s.verdict(f.checks()); wrong != 1 {
		t.Errorf("%d are wrong, want 1", wrong)
	}
	if want := "\nWRONG           attempts/requests/effects  2 / 2 / 1           3 / 2 / 1\n"; !strings.Contains(text.String(), want) {
		t.Errorf("shown:\n%s\nwant a line %q", text.String(), want)
	}
}
