package handler_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestExcerptHoldsNoArgumentsThatAreEchoedInsideJSON(t *testing.T) {
	const ours = `{"note":"Grüße \"x\" <b>/🚀","order":17}`
	for name, encode := range map[string]func(string) string{
		"Go": func(s string) string { b, _ := json.Marshal(s); return string(b) }, // a string always has a form
		"JavaScript": func(s string) string {
			return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
		},
		"PHP": func(s string) string {
			return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `/`, `\/`).Replace(s) + `"`
		},
		"Python": func(s string) string {
			return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "ü", `\u00fc`, "ß", `\u00df`, "🚀", `\ud83d\ude80`).Replace(s) + `"`
		},
	} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			body := swallow(r.Body)
			w.WriteHeader(http.StatusInternalServerError)
			say(w, `{"error":"cannot handle","got":`+encode(string(body))+`}`)
		})
		c := call()
		c.Arguments = []byte(ours)
		out := build(t, post(s.URL)).Handler.Execute(within(t, time.Minute), c)
		if want := `{"error":"cannot handle","got":"[redacted]"}`; out.Excerpt != want {
			t.Errorf("%s: got %s, want %s", name, out.Excerpt, want)
		}
	}
}
