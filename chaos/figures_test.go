package chaos_test

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// figures are what a run has shown, by campaign and name. docs/chaos.md is made
// of them.
var figures = struct {
	mu      sync.Mutex // guards what follows
	n       map[string]map[string]int
	skipped map[string]string // campaigns that were not run, and why
}{n: map[string]map[string]int{}, skipped: map[string]string{}}

// figure adds to a figure of a campaign.
func figure(campaign, name string, n int) {
	figures.mu.Lock()
	defer figures.mu.Unlock()
	if figures.n[campaign] == nil {
		figures.n[campaign] = map[string]int{}
	}
	figures.n[campaign][name] += n
}

// figured is a figure so far.
func figured(campaign, name string) int {
	figures.mu.Lock()
	defer figures.mu.Unlock()
	return figures.n[campaign][name]
}

func skipped(campaign, why string) {
	figures.mu.Lock()
	defer figures.mu.Unlock()
	figures.skipped[campaign] = why
}

const figuresPage = "../docs/chaos.md"

// The lines between which a run writes its figures.
const (
	figuresBegin = "<!-- figures: written by a run -->\n"
	figuresEnd   = "<!-- end of the figures -->\n"
)

// writeFigures puts the figures of a run into the page.
func writeFigures(took time.Duration) error {
	page, err := os.ReadFile(figuresPage)
	if err != nil {
		return fmt.Errorf("read %s: %w", figuresPage, err)
	}
	head, rest, ok := strings.Cut(string(page), figuresBegin)
	_, tail, end := strings.Cut(rest, figuresEnd)
	if !ok || !end {
		return fmt.Errorf("%s has no place for figures", figuresPage)
	}
	text := head + figuresBegin + figureTable(took) + figuresEnd + tail
	if err := os.WriteFile(figuresPage, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", figuresPage, err)
	}
	return nil
}

func figureTable(took time.Duration) string {
	figures.mu.Lock()
	defer figures.mu.Unlock()
	form := "quick"
	if full {
		form = "full"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The %s form, %d processors, %s, %s:\n\n| campaign | figures |\n|---|---|\n",
		form, runtime.NumCPU(), runtime.Version(), took.Round(time.Second))
	for _, campaign := range slices.Sorted(maps.Keys(figures.n)) {
		var list []string
		for _, name := range slices.Sorted(maps.Keys(figures.n[campaign])) {
			list = append(list, fmt.Sprintf("%d %s", figures.n[campaign][name], name))
		}
		fmt.Fprintf(&b, "| %s | %s |\n", campaign, strings.Join(list, ", "))
	}
	fmt.Fprintf(&b, "\nNot shown in this run: %d.\n", len(figures.skipped))
	for _, name := range slices.Sorted(maps.Keys(figures.skipped)) {
		fmt.Fprintf(&b, "- %s: %s\n", name, figures.skipped[name])
	}
	return b.String()
}
