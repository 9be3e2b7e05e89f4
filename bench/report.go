package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// report prints the table and, if asked, keeps it.
func (o options) report(ctx context.Context, found results) error {
	head, err := o.head(ctx)
	if err != nil {
		return err
	}
	text := head + table(found)
	fmt.Print(text)
	if !o.write {
		return nil
	}
	return os.WriteFile("RESULTS.md", []byte(text), 0o644)
}

func (o options) head(ctx context.Context) (string, error) {
	sync, err := probe(o.dir)
	if err != nil {
		return "", fmt.Errorf("probe disk: %w", err)
	}
	var b strings.Builder
	b.WriteString("# What was measured\n\n")
	fmt.Fprintf(&b, "%s, %d cores, %s, modernc.org/sqlite %s, revision %s. A synced overwrite of 4 KiB took %.0f µs.\n",
		time.Now().UTC().Format("2006-01-02 15:04 MST"), runtime.NumCPU(), runtime.Version(),
		version("modernc.org/sqlite"), revision(ctx), sync)
	if o.quick {
		b.WriteString("\n**A quick run: small numbers, once. It shows that everything works; its figures mean little.**\n")
	}
	b.WriteString(`
Every run is a process of its own on a file on disk, WAL, synchronous=FULL,
psow=0, arguments of about 100 bytes. Medians of the runs with (least–most);
runs that stand beside each other alternated, and the ratio is the median of
the pairs. The yardstick is limit.go. What is required stands with its verdict.

`)
	fmt.Fprintf(&b, "%s\n\n", sizesOf(o.quick))
	return b.String(), nil
}

func version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return "unknown"
}

func revision(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func table(found results) string {
	var b strings.Builder
	b.WriteString("| figure | outboxd | beside it | ratio | required |\n|---|---|---|---|---|\n")
	for _, f := range figures {
		got := values(found[f.of], f.metric)
		if len(got) == 0 {
			fmt.Fprintf(&b, "| %s | not measured | | | |\n", f.name)
			continue
		}
		beside := values(found[f.beside], f.metric)
		ratios := pairs(got, beside)
		var verdicts []string
		for _, n := range f.need {
			verdicts = append(verdicts, n.verdict(f.unit, got, ratios))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", f.name, spread(got, f.unit), spread(beside, f.unit),
			spread(ratios, ""), strings.Join(verdicts, "; "))
	}
	return b.String()
}

func values(runs []metrics, metric string) []float64 {
	var v []float64
	for _, m := range runs {
		if x, ok := m[metric]; ok {
			v = append(v, x)
		}
	}
	return v
}

func pairs(a, b []float64) []float64 {
	var v []float64
	for i := range min(len(a), len(b)) {
		v = append(v, a[i]/b[i])
	}
	return v
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s) == 0 {
		return math.NaN()
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// spread is the median with the least and the most.
func spread(v []float64, unit string) string {
	switch len(v) {
	case 0:
		return ""
	case 1:
		return number(v[0]) + suffix(unit)
	}
	return fmt.Sprintf("**%s**%s (%s–%s)", number(median(v)), suffix(unit), number(slices.Min(v)), number(slices.Max(v)))
}

func suffix(unit string) string {
	if unit == "" || strings.HasPrefix(unit, "/") {
		return unit
	}
	return " " + unit
}

func number(x float64) string {
	switch a := math.Abs(x); {
	case a >= 1000:
		n := fmt.Sprintf("%.0f", x)
		return n[:len(n)-3] + "," + n[len(n)-3:]
	case a >= 100 || x == 0:
		return fmt.Sprintf("%.0f", x)
	case a >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func (n need) verdict(unit string, got, ratios []float64) string {
	v := median(got)
	if n.ratio {
		v, unit = median(ratios), ""
	}
	text, ok := "none", v == 0
	switch {
	case n.atLeast > 0:
		text, ok = "at least "+number(n.atLeast)+suffix(unit), v >= n.atLeast
	case n.below > 0:
		text, ok = "below "+number(n.below)+suffix(unit), v < n.below
	}
	if n.ratio {
		text = "ratio " + text
	}
	if ok {
		return text + ": ok"
	}
	return text + ": **short**"
}
