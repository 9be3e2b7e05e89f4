package demo

import "strings"

// The colours, as SGR parameters (ECMA-48, 8.3.117). They only repeat what the
// words say.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// cell is a text of ASCII, and its colour; empty: none.
type cell struct{ text, colour string }

func plain(text string) cell { return cell{text: text} }

func (s *screen) bold(text string) string { return s.paint(cell{text, bold}) }

func (s *screen) paint(c cell) string {
	if !s.colour || c.colour == "" || c.text == "" {
		return c.text
	}
	return "\x1b[" + c.colour + "m" + c.text + "\x1b[0m"
}

func (s *screen) status(word string) cell {
	switch word {
	case "":
		return plain("-")
	case "succeeded":
		return cell{word, green}
	case "unknown", "dead":
		return cell{word, yellow}
	}
	return plain(word)
}

// grid lays out cells in columns.
type grid struct {
	head []string
	rows [][]cell
}

func (g *grid) add(cells ...cell) { g.rows = append(g.rows, cells) }

// lines are the head and the rows, without blanks at their ends.
func (g *grid) lines(s *screen) []string {
	head := make([]cell, len(g.head))
	for i, text := range g.head {
		head[i] = cell{text, bold}
	}
	rows := append([][]cell{head}, g.rows...)
	widths := make([]int, len(head))
	for _, cells := range rows {
		for i, c := range cells {
			widths[i] = max(widths[i], len(c.text))
		}
	}
	lines := make([]string, len(rows))
	for n, cells := range rows {
		var b strings.Builder
		for i, c := range cells {
			b.WriteString(s.paint(c) + strings.Repeat(" ", widths[i]-len(c.text)+2))
		}
		lines[n] = strings.TrimRight(b.String(), " ")
	}
	return lines
}

// fit cuts a line to a width, colours not counted.
func fit(line string, width int) string {
	shown, inside := 0, false
	for i := range len(line) {
		switch {
		case inside:
			inside = line[i] != 'm'
		case line[i] == '\x1b':
			inside = true
		default:
			if shown++; shown > width {
				return line[:i] + "\x1b[0m"
			}
		}
	}
	return line
}

// hang sets a text to 78 columns behind a label, its further lines below its
// first.
func hang(label, text string) string {
	var b strings.Builder
	b.WriteString("  " + label)
	indent := len(label) + 2
	at := indent
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case at+1+len(word) > 78:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	return b.String() + "\n"
}
