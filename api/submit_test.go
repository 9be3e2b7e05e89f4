package api_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

var asJSON = map[string]string{"Content-Type": "application/json"}

// post submits bytes as they are.
func (w *world) post(body string) (status int, p api.Problem) {
	w.t.Helper()
	res, text := w.raw("POST", "/v1/operations", asJSON, body)
	if err := json.Unmarshal([]byte(text), &p); err != nil && res.status >= 400 {
		w.t.Fatalf("answer to %.80s is no problem: %s", body, text)
	}
	return res.status, p
}

func (w *world) count() (n int) {
	w.t.Helper()
	ledgertest.Read(w.t, w.ledger, func(v *ledger.View) error {
		return v.One(`SELECT count(*) FROM outbox_operation`).Scan(&n)
	})
	return n
}

// withArgs is a case with these arguments, as they are.
func withArgs(args string) string {
	return strings.Replace(caseText(opaque, "order-1"), `{"order":17}`, args, 1)
}

func TestBodiesAreStrictJSON(t *testing.T) {
	w := newWorld(t, script{})
	levels := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct{ name, body, path, what string }{
		{"twice", `{"call":{},"call":{}}`, "call", "member appears twice"},
		{"twice, deep", withArgs(`{"a":{"b":{"c":{"d":{"e":1,"e":2}}}}}`), "arguments/a/b/c/d/e", "member appears twice"},
		{"twice, escaped", withArgs(`{"a":1,"\u0061":2}`), "arguments/a", "member appears twice"},
		{"byte FF", withArgs("{\"a\":\"\xff\"}"), "", "is not UTF-8"},
		{"overlong", withArgs("{\"a\":\"\xc0\x80\"}"), "", "is not UTF-8"},
		{"cut character", strings.Replace(caseText(opaque, "order-1"), "order-1", "caf\xc3", 1), "", "is not UTF-8"},
		{"lone surrogate", withArgs(`{"a":"\ud800"}`), "arguments/a", "lone surrogate"},
		{"beyond 2^53", withArgs(`{"account":9007199254740993}`), "arguments/account", ""},
		{"1e400", withArgs(`{"a":1e400}`), "arguments/a", ""},
		{"-1e400", withArgs(`[-1e400]`), "arguments/0", ""},
		{"1e1000000000", withArgs(`1e1000000000`), "arguments", ""},
		{"1e-400", withArgs(`1e-400`), "arguments", ""},
		{"NaN", withArgs(`NaN`), "arguments", "no JSON"},
		{"Infinity", withArgs(`-Infinity`), "arguments", ""},
		{"BOM", "\xef\xbb\xbf" + withArgs(`{}`), "", "starts with a BOM"},
		{"UTF-16", "\xff\xfe{\x00}\x00", "", "starts with a BOM"},
		{"33 levels", withArgs(levels(33)), "arguments" + strings.Repeat("/0", 32), "more than 32 levels"},
		{"35 levels", withArgs(levels(35)), "arguments" + strings.Repeat("/0", 32), "more than 32 levels"},
		{"100,000 levels", withArgs(strings.Repeat("[", 100000)), "arguments" + strings.Repeat("/0", 32), "more than 32 levels"},
		{"mixed levels", withArgs(strings.Repeat(`{"a":[`, 40)), "arguments" + strings.Repeat("/a/0", 16), "more than 32 levels"},
		{"unknown member", `{"callx":{}}`, "callx", "unknown member"},
		{"unknown member, deep", `{"call":{"tool_name":"x","argument":{}}}`, "call/argument", "unknown member"},
		{"unknown member of the principal", `{"principal":{"tenant":"x"}}`, "principal/tenant", "unknown member"},
		{"case of a name", `{"Call":{}}`, "Call", "unknown member"},
		{"number for a string", `{"idempotency_key":7}`, "idempotency_key", "wrong type"},
		{"string for an object", `{"call":"x"}`, "call", "wrong type"},
		{"fraction for a turn", `{"turn":1.5}`, "turn", "wrong type"},
		{"date only", `{"not_before":"2026-01-01"}`, "not_before", "wrong type"},
		{"array", `[]`, "", "must be a JSON object"},
		{"null", ` null `, "", "must be a JSON object"},
		{"empty string", `""`, "", "must be a JSON object"},
		{"zero instant", strings.Replace(caseText(opaque, "a"), `{"principal"`, `{"not_before":"0001-01-01T00:00:00Z","principal"`, 1), "not_before", "out of range"},
		{"turn 0", strings.Replace(caseText(opaque, "a"), `{"principal"`, `{"session":"s","turn":0,"principal"`, 1), "turn", "out of range"},
		{"turn 0 without a session", strings.Replace(caseText(opaque, "a"), `{"principal"`, `{"turn":0,"principal"`, 1), "turn", "out of range"},
		{"two values", `{} {}`, "", ""},
		{"cut off", `{"call":`, "call", "ends too early"},
		{"approval", strings.Replace(caseText(opaque, "a"), `{"principal"`, `{"approval":{},"principal"`, 1), "approval/approval_id", "is absent"},
	} {
		status, p := w.post(c.body)
		if status != 422 || p.Code != "INPUT_INVALID" || len(p.Errors) == 0 {
			t.Errorf("%s: got %d %+v, want 422 INPUT_INVALID with errors", c.name, status, p)
			continue
		}
		if e := p.Errors[0]; e.Path != c.path || !strings.Contains(e.What, c.what) || e.Allowed == "" {
			t.Errorf("%s: got %+v, want path %q, what %q", c.name, e, c.path, c.what)
		}
	}
	if n := w.count(); n != 0 {
		t.Errorf("%d operations were accepted", n)
	}
}

func TestArgumentsMayHave32LevelsInsideTheirCase(t *testing.T) {
	w := newWorld(t, script{})
	args := strings.Repeat("[", 32) + strings.Repeat("]", 32)
	if status, p := w.post(withArgs(args)); status != 202 {
		t.Errorf("got %d %+v, want 202", status, p)
	}
}

func TestKeysAreBytesAndOneRuleSaysWhatIsNone(t *testing.T) {
	w := newWorld(t, script{})
	refs := map[string]bool{}
	keys := []string{"007", "7", "1e3", "1000", "0x10", "caf\u00e9-3", "cafe\u0301-3", "cr\u0430te-17", "crate-17", "Crate-17"}
	for _, key := range keys {
		a, err := w.client.Submit(context.Background(), aCase(opaque, key), 0)
		if err != nil || a.IdempotencyKey != key || a.Code != "ACCEPTED" {
			t.Errorf("key %q: got %+v, %v", key, a, err)
		}
		refs[a.StatusRef] = true
		found, err := w.client.Find(context.Background(), api.Filter{Tool: opaque, Key: key})
		if err != nil || found.StatusRef != a.StatusRef {
			t.Errorf("find key %q: got %+v, %v, want %s", key, found, err, a.StatusRef)
		}
	}
	if len(refs) != len(keys) {
		t.Errorf("%d keys became %d operations", len(keys), len(refs))
	}
	with := func(key string) string {
		return strings.Replace(caseText(opaque, "K"), `"idempotency_key":"K"`, `"idempotency_key":`+key, 1)
	}
	for _, body := range []string{
		with(`null`), with(`""`), with(`" "`), with(`"\t\n"`), strings.Replace(with(`null`), `,"idempotency_key":null`, "", 1),
	} {
		for range 2 {
			if status, p := w.post(body); status != 422 || p.Code != "KEY_REQUIRED" {
				t.Errorf("%s: got %d %s, want 422 KEY_REQUIRED", body, status, p.Code)
			}
		}
	}
	for _, key := range []string{`" a"`, `"a\n"`, `"a\u0000b"`, `"` + strings.Repeat("k", 256) + `"`} {
		if status, p := w.post(with(key)); status != 422 || p.Code != "INPUT_INVALID" {
			t.Errorf("key %.20s: got %d %s, want 422 INPUT_INVALID", key, status, p.Code)
		}
	}
}

func TestEqualJSONIsARepetition(t *testing.T) {
	w := newWorld(t, script{})
	if status, p := w.post(withArgs(`{"b":"<&>\u2028","a":1}`)); status != 202 {
		t.Fatalf("got %d %+v", status, p)
	}
	if status, p := w.post(withArgs("{ \"a\" : 1.0,\n\"b\":\"\\u003c&>\u2028\"}")); status != 200 {
		t.Errorf("re-ordered and re-spaced: got %d %+v, want 200", status, p)
	}
}

func TestUnknownToolsAreNamedInTheAnswer(t *testing.T) {
	w := newWorld(t, script{})
	_, err := w.client.Submit(context.Background(), aCase("no_such", "order-1"), 0)
	p := refused(t, "submit to no tool", err, 422, "TOOL_UNKNOWN")
	if len(p.Errors) != 1 || p.Errors[0].Path != "tool_name" || p.Exit() != 2 {
		t.Errorf("got %+v", p)
	}
}

func TestParallelSubmitsOfOneKeyAreOneOperation(t *testing.T) {
	w := newWorld(t, script{})
	refs := make(chan string, 50)
	var all sync.WaitGroup
	for range cap(refs) {
		all.Go(func() {
			a, err := w.client.Submit(context.Background(), aCase(opaque, "kite-204"), 0)
			if err != nil {
				t.Error(err)
			}
			refs <- a.StatusRef
		})
	}
	all.Wait()
	first := <-refs
	for range cap(refs) - 1 {
		if ref := <-refs; ref != first {
			t.Errorf("got %s beside %s", ref, first)
		}
	}
	if n := w.count(); n != 1 {
		t.Errorf("%d operations, want 1", n)
	}
}

func TestNotBeforeIsWhenItIsDue(t *testing.T) {
	w := newWorld(t, script{})
	c := aCase(opaque, "order-1")
	whole := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	c.NotBefore = whole.Add(-time.Microsecond).In(time.FixedZone("", 3600))
	a, err := w.client.Submit(context.Background(), c, 0)
	if err != nil || !a.DueAt.Equal(whole) {
		t.Errorf("due at %s (%v), want %s", a.DueAt, err, whole)
	}
	if b, err := w.client.Status(context.Background(), a.StatusRef, 0); err != nil || !b.DueAt.Equal(whole) {
		t.Errorf("status: due at %s (%v), want %s", b.DueAt, err, whole)
	}
}

func TestBodiesAreBounded(t *testing.T) {
	w := newWorld(t, script{})
	big := strings.Repeat(" ", api.MaxBody+1)
	status, p := w.post(big)
	if status != 413 || p.Code != "BODY_TOO_LARGE" {
		t.Errorf("got %d %s, want 413", status, p.Code)
	}
	status, p = w.post(withArgs(`"` + strings.Repeat("a", 65536) + `"`))
	if status != 422 || p.Code != "INPUT_INVALID" {
		t.Errorf("65,538 bytes of arguments: got %d %s, want 422 INPUT_INVALID", status, p.Code)
	}
	if status, p = w.post(withArgs(`"` + strings.Repeat("a", 65534) + `"`)); status != 202 {
		t.Errorf("65,536 bytes of arguments: got %d %+v, want 202", status, p)
	}
}

func TestATooLargeBodyIsAnsweredToWhoWritesAllOfItFirst(t *testing.T) {
	w := newWorld(t, script{})
	body := strings.Repeat(" ", 5<<20)
	for _, framing := range []string{
		fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body),
		fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body),
	} {
		text := all(t, partly(t, w, framing, "application/json"))
		if !strings.HasPrefix(text, "HTTP/1.1 413 ") || !strings.Contains(text, "BODY_TOO_LARGE") || !strings.Contains(text, "Connection: close") {
			t.Errorf("got %q, want 413 and the end of the connection", text)
		}
	}
}

func TestBodiesWithoutALengthAreReadAndBoundedToo(t *testing.T) {
	w := newWorld(t, script{})
	for body, want := range map[string]int{caseText(opaque, "order-1"): 202, strings.Repeat(" ", api.MaxBody+1): 413, "": 422} {
		r, err := http.NewRequest("POST", "http://outboxd/v1/operations", io.MultiReader(strings.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		transport := api.Socket(w.socket)
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != want {
			t.Errorf("%d bytes: got %d, want %d", len(body), res.StatusCode, want)
		}
		res.Body.Close()
		transport.CloseIdleConnections()
	}
}

func TestCasesWithoutWhatTheyNeedAreRefused(t *testing.T) {
	w := newWorld(t, script{})
	for _, body := range []string{"", "null", "{", `{"a":1}`, `{"principal":{"tenant_id":"acme"}}`} {
		status, p := w.post(body)
		if status != 422 || p.Code != "INPUT_INVALID" {
			t.Errorf("%s: got %d %+v, want 422 INPUT_INVALID", body, status, p)
		}
		if !strings.HasPrefix(p.Error(), "INPUT_INVALID: ") || !strings.Contains(p.Error(), "allowed: ") {
			t.Errorf("%s: the error reads %q", body, p.Error())
		}
	}
}

func TestAnswersAndProblemsHoldNoPayload(t *testing.T) {
	w := newWorld(t, script{})
	for _, body := range []string{
		withArgs(`{"a":"secret","a":"secret"}`), withArgs(`{"a":secret}`), withArgs(`{"a":"secret`),
		caseText(opaque, "secret "), `{"turn":"secret"}`, `{"not_before":"secret"}`,
		caseText(opaque, "k") + "secret",
	} {
		if res, text := w.raw("POST", "/v1/operations", asJSON, body); res.status != 422 || strings.Contains(text, "secret") {
			t.Errorf("%s: got %d %s", body, res.status, text)
		}
	}
}

func TestBusyDatabaseIsSaidInTimeAndNothingIsAccepted(t *testing.T) {
	if testing.Short() {
		t.Skip("waits five seconds for the lock")
	}
	w := newWorld(t, script{})
	unlock := w.lockOut()
	_, err := w.client.Submit(context.Background(), aCase(opaque, "order-1"), 0)
	p := refused(t, "submit during a foreign transaction", err, 503, "DATABASE_BUSY")
	if p.Exit() != 2 {
		t.Errorf("exit %d, want 2", p.Exit())
	}
	unlock()
	if n := w.count(); n != 0 {
		t.Errorf("%d operations", n)
	}
	if _, err := w.client.Submit(context.Background(), aCase(opaque, "order-1"), 0); err != nil {
		t.Errorf("submit afterwards: %v", err)
	}
}

func TestReplacedFileAcceptsNothing(t *testing.T) {
	w := newWorld(t, script{})
	w.misplace()
	_, err := w.client.Submit(context.Background(), aCase(opaque, "order-1"), 0)
	p := refused(t, "submit into a file that was moved", err, 503, "DATABASE_REPLACED")
	if !strings.Contains(p.Detail, "not known") || !strings.Contains(p.Detail, "again with the same key") {
		t.Errorf("got %q, want that it is not known, and what to do", p.Detail)
	}
}

func ExampleClient_Submit() {
	client := api.NewClient(api.Socket("/run/outboxd/outboxd.sock"))
	answer, err := client.Submit(context.Background(), api.Case{
		Principal:      &api.Principal{Tenant: "acme", Subject: "shop"},
		Call:           api.CaseCall{Tool: "refund_order", Arguments: []byte(`{"order":17}`)},
		IdempotencyKey: "refund-17",
	}, 5*time.Second)
	if err != nil {
		fmt.Println(err) // a *api.Problem where the daemon said no
		return
	}
	fmt.Println(answer.StatusRef, answer.Code)
}
