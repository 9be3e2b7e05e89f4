package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/outboxd/outboxd/api"
)

// The colours of a terminal. What is decided with them is never said by them alone.
const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (a *app) inTables() bool {
	if a.flags.output == "" {
		return isTerminal(a.stdout)
	}
	return a.flags.output == "table"
}

// colour paints a word on a terminal whose user wants that (no-color.org).
func (a *app) colour(code, word string) string {
	if a.flags.noColor || a.variable("NO_COLOR") != "" || !isTerminal(a.stdout) {
		return word
	}
	return code + word + plain
}

// show writes a value as JSON, or as the table that is made of it.
func (a *app) show(value any, rows func(t table.Writer)) error {
	if !a.inTables() {
		b, err := json.Marshal(value, jsontext.AllowInvalidUTF8(true))
		if err != nil {
			return fmt.Errorf("encode output: %w", err)
		}
		return a.write(string(b))
	}
	t := table.NewWriter()
	t.SetStyle(table.StyleDefault)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Format.Header = text.FormatDefault // the words are the same everywhere
	t.Style().Box.PaddingLeft = ""
	t.Style().Box.PaddingRight = "  "
	rows(t)
	var out strings.Builder
	for line := range strings.Lines(t.Render()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return a.write(strings.TrimRight(out.String(), "\n"))
}

func (a *app) write(text string) error {
	if text == "" {
		return nil
	}
	if _, err := fmt.Fprintln(a.stdout, text); err != nil {
		return &coded{"OUTPUT_IO_ERROR", "stdout does not take the answer: " + withoutPath(err)}
	}
	return nil
}

// answer shows what every command about one operation answers with.
func (a *app) answer(ans api.Answer) error {
	return a.show(ans, func(t table.Writer) {
		t.AppendRow(table.Row{"status", ans.Status})
		t.AppendRow(table.Row{"gate", a.gate(ans.Gate) + " " + ans.Code})
		optional(t, "reason", ans.Reason)
		optional(t, "delivery", ans.Delivery)
		optional(t, "result", string(ans.Result))
		t.AppendRow(table.Row{"tool", cell(ans.Tool)})
		t.AppendRow(table.Row{"key", cell(ans.IdempotencyKey)})
		t.AppendRow(table.Row{"attempts", ans.Attempts})
		optional(t, "due_at", instant(ans.DueAt))
		t.AppendRow(table.Row{"status_ref", ans.StatusRef})
		optional(t, "parent", ans.Parent)
		optional(t, "children", strings.Join(ans.Children, " "))
	})
}

func (a *app) gate(gate string) string {
	if gate == api.Pass {
		return a.colour(green, gate)
	}
	return a.colour(yellow, gate)
}

// refusal shows an expected "no" about an operation that is not shown itself.
func (a *app) refusal(p *api.Problem) error {
	no := struct {
		Gate   string   `json:"gate"`
		Code   string   `json:"code"`
		Detail string   `json:"detail,omitzero"`
		Fields []string `json:"fields,omitzero"`
		Status string   `json:"status,omitzero"` // a review that is refused: at present
	}{p.Gate, p.Code, p.Detail, p.Fields, p.State}
	return a.show(no, func(t table.Writer) {
		t.AppendRow(table.Row{"gate", a.gate(p.Gate) + " " + p.Code})
		optional(t, "detail", p.Detail)
		optional(t, "status", p.State)
		optional(t, "fields", strings.Join(p.Fields, ", "))
	})
}

func optional(t table.Writer, name, value string) {
	if value != "" {
		t.AppendRow(table.Row{name, cell(value)})
	}
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// cell is text that a terminal only prints: what would move its cursor, or turn
// the direction of a line, is escaped.
func cell(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// briefest is how many characters a cell has of what may be of any length; JSON has
// more.
const briefest = 60

// brief is a cell that leaves room for the others.
func brief(s string) string {
	text := []rune(cell(s))
	if len(text) <= briefest {
		return string(text)
	}
	return string(text[:briefest-3]) + "..."
}
