package handler_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/outboxd/outboxd/handler"
)

func TestWhatAHandlerOfOthersSaysIsBoundedAndSafe(t *testing.T) {
	long := strings.Repeat("ü", 5000)
	for name, c := range map[string]struct{ result, excerpt, wantResult, wantExcerpt string }{
		"canonical":                 {`{"a":1}`, "", `{"a":1}`, ""},
		"spaced":                    {`{"b": 1, "a": 2}`, "", `{"a":2,"b":1}`, ""},
		"no JSON is evidence":       {"done\x1b[2J", "", "", `done\x1b[2J`},
		"duplicate names":           {`{"a":1,"a":2}`, "", "", `{"a":1,"a":2}`},
		"other evidence is kept":    {"done", "its own", "", "its own"},
		"several lines of evidence": {"", "a\nb", "", `a\nb`},
		"nothing":                   {"", "", "", ""},
	} {
		out := handler.Outcome{Observed: handler.Succeeded, Code: "ok", Result: []byte(c.result), Excerpt: c.excerpt}.Normal()
		ans := handler.Answer{Found: handler.Applied, Code: "ok", Result: []byte(c.result), Excerpt: c.excerpt}.Normal()
		if string(out.Result) != c.wantResult || (c.wantResult == "") != (out.Result == nil) || out.Excerpt != c.wantExcerpt {
			t.Errorf("%s: got result %q excerpt %q, want %q %q", name, out.Result, out.Excerpt, c.wantResult, c.wantExcerpt)
		}
		if string(ans.Result) != string(out.Result) || ans.Excerpt != out.Excerpt {
			t.Errorf("%s: an answer becomes %q %q, an outcome %q %q", name, ans.Result, ans.Excerpt, out.Result, out.Excerpt)
		}
	}
	out := handler.Outcome{Observed: "fine", Code: long, Result: []byte(`"` + long + long + long + long + long + long + long + `"`),
		Reference: long, Answered: true, RetryAfter: -1}.Normal()
	if out.Observed != handler.MayHaveHappened || out.Answered || out.Result != nil || out.RetryAfter != 0 {
		t.Errorf("got %s answered %v, %d bytes of result, retry after %v", out.Observed, out.Answered, len(out.Result), out.RetryAfter)
	}
	for what, c := range map[string]struct {
		text string
		most int
	}{"code": {out.Code, 64}, "reference": {out.Reference, 255}, "excerpt": {out.Excerpt, handler.MaxExcerpt}} {
		if len(c.text) > c.most || len(c.text) < c.most-8 || !utf8.ValidString(c.text) {
			t.Errorf("%s: got %d bytes, want about %d, whole runes", what, len(c.text), c.most)
		}
	}
	if ans := (handler.Answer{Found: "yes"}).Normal(); ans.Found != handler.NoAnswer {
		t.Errorf("an answer that does not exist: got %s, want %s", ans.Found, handler.NoAnswer)
	}
	if again := out.Normal(); again.Code != out.Code || again.Excerpt != out.Excerpt {
		t.Error("what is normal changes when it is made so again")
	}
}
