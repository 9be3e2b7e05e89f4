package daemon

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/ledgertest"
)

var update = flag.Bool("update", false, "write the reference of the metrics")

const (
	reference = "../docs/reference/metrics.md"
	runbook   = "../docs/alerts.md"
	rules     = "../examples/monitoring/outboxd.rules.yml"
	dashboard = "../examples/monitoring/outboxd.dashboard.json"
)

// family is one metric as a scrape shows it.
type family struct {
	name, kind, help string
	labels           map[string][]string // with the values that do not come from the config
}

// families are all metrics of a daemon with one tool, in the order of their names.
func families(t *testing.T) (list []*family) {
	t.Helper()
	s := scrape(t, ledgertest.Tool("TOOL", entry.Idempotent))
	s.metrics.logs(nil)
	s.metrics.build("VERSION")
	for _, l := range (&daemon{poller: s.p, ledger: s.l}).vital(&prober{}) {
		s.metrics.work.stuck.WithLabelValues(l.name)
	}
	var f *family
	for line := range strings.Lines(s.answer()) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# HELP outboxd_"); ok {
			name, help, _ := strings.Cut(rest, " ")
			f = &family{name: "outboxd_" + name, help: help, labels: map[string][]string{}}
			list = append(list, f)
		} else if rest, ok := strings.CutPrefix(line, "# TYPE outboxd_"); ok {
			_, f.kind, _ = strings.Cut(rest, " ")
		} else if strings.HasPrefix(line, "outboxd_") {
			for _, pair := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(line, -1) {
				if name, value := pair[1], pair[2]; name != "le" && !slices.Contains(f.labels[name], value) {
					f.labels[name] = append(f.labels[name], value)
				}
			}
		}
	}
	return list
}

// The reference is what a scrape says of itself:
// go test ./daemon -run Reference -update writes it.
func TestTheReferenceOfTheMetricsIsComplete(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Metrics

Made from the program: ` + "`go test ./daemon -run Reference -update`" + `. They are read at ` + "`GET /metrics`" + ` on the socket; how they get to Prometheus, and what to do about them, stands in [alerts.md](../alerts.md).

The number of series follows from the config alone: ` + "`tool`" + ` is a configured tool or ` + "`other`" + `, every other label has the values that are listed. Beside these there are the usual metrics of the process (` + "`process_*`" + `) and of the Go runtime (` + "`go_*`" + `).

| metric | kind | labels | meaning |
|---|---|---|---|
`)
	for _, f := range families(t) {
		var labels []string
		for _, name := range slices.Sorted(maps.Keys(f.labels)) {
			label := "`" + name + "`"
			if values := f.labels[name]; name != "tool" && name != "version" && name != "goversion" {
				label += ": " + strings.Join(values, ", ")
			}
			labels = append(labels, label)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.name, f.kind, strings.Join(labels, "; "), f.help)
	}
	if *update {
		if err := os.WriteFile(reference, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(reference); err != nil || string(text) != b.String() {
		t.Errorf("%s is not what a scrape says (%v): go test ./daemon -run Reference -update", reference, err)
	}
}

// checkExpr complains about a metric or a value of a label in an expression that
// no scrape shows, and about brackets.
func checkExpr(t *testing.T, where, expr string, known []*family) {
	t.Helper()
	found := false
	for _, m := range regexp.MustCompile(`(outboxd_\w+)(\{[^}]*\})?`).FindAllStringSubmatch(expr, -1) {
		i := slices.IndexFunc(known, func(f *family) bool {
			return f.name == m[1] || f.kind == "histogram" && slices.Contains([]string{"_bucket", "_sum", "_count"}, strings.TrimPrefix(m[1], f.name))
		})
		if i < 0 {
			t.Errorf("%s names %s, which no scrape shows", where, m[1])
			continue
		}
		found = true
		for _, pair := range regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
			values, ok := known[i].labels[pair[1]]
			pattern := regexp.MustCompile("^(?:" + pair[3] + ")$")
			if !ok || !slices.ContainsFunc(values, pattern.MatchString) {
				t.Errorf("%s: %s has no label %s with a value %s", where, m[1], pair[1], pair[3])
			}
		}
	}
	if !found {
		t.Errorf("%s names no metric of outboxd: %s", where, expr)
	}
	for _, pair := range []string{"()", "[]", "{}"} {
		if strings.Count(expr, pair[:1]) != strings.Count(expr, pair[1:]) {
			t.Errorf("%s: brackets do not match: %s", where, expr)
		}
	}
}

func TestEveryAlertNamesWhatThereIsAndSaysWhatToDo(t *testing.T) {
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				For         string
				Labels      struct{ Severity string }
				Annotations struct{ Summary, Description, Runbook string }
			}
		}
	}
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatalf("%s: %v", rules, err)
	}
	advice, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	known := families(t)
	var alerts, headings []string
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Alert)
			checkExpr(t, r.Alert, r.Expr, known)
			if _, err := time.ParseDuration(r.For); err != nil || !slices.Contains([]string{"critical", "warning", "info"}, r.Labels.Severity) {
				t.Errorf("%s: for %q, severity %q", r.Alert, r.For, r.Labels.Severity)
			}
			if a := r.Annotations; a.Summary == "" || a.Description == "" || a.Runbook != "docs/alerts.md#"+strings.ToLower(r.Alert) {
				t.Errorf("%s: annotations %+v", r.Alert, a)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(string(advice), -1) {
		headings = append(headings, m[1])
	}
	if len(alerts) < 20 || !slices.Equal(alerts, headings) {
		t.Errorf("%s advises on\n%q, and the rules are\n%q", runbook, headings, alerts)
	}
}

func TestEveryPanelOfTheDashboardNamesWhatThereIs(t *testing.T) {
	var file struct {
		Panels []struct {
			ID          int
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	text, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatalf("%s: %v", dashboard, err)
	}
	known := families(t)
	ids := map[int]bool{}
	for _, p := range file.Panels {
		if ids[p.ID] || p.Title == "" || (p.Type != "row" && len(p.Targets) == 0) {
			t.Errorf("panel %d, %q: twice, without a title or without an expression", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			checkExpr(t, p.Title, target.Expr, known)
		}
	}
}
