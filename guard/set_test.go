package guard_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/guard"
	"github.com/outboxd/outboxd/handler"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

// clerks may submit for acme, and are clerks.
var clerks = guard.Configured{
	{Name: "p", UID: 7, Roles: []string{"clerk"}, MaySubmit: []config.Scope{{Tenant: "acme", Subject: "*", Tools: []string{"refund"}}}},
	{Name: "q", UID: 8, Roles: []string{"boss"}, MaySubmit: []config.Scope{{Tenant: "globex", Subject: "*"}}},
}

func question(t *testing.T) guard.Question {
	return guard.Question{File: ledgertest.Open(t), Roles: clerks, Call: handler.Call{
		StatusRef: "ref", Tool: "refund", Tenant: "acme", Subject: "shop", Key: "order-17", WireKey: "wire", Arguments: []byte(`{"amount":5,"secret":"s3cret"}`),
	}}
}

func set(t *testing.T, guards ...config.Guard) *guard.Set {
	t.Helper()
	s, err := guard.Build(config.Tool{Name: "refund", Timeout: 5 * time.Second, Guards: guards}, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// script is a program that reads its input and ends as told.
func script(t *testing.T, text string) *config.Exec {
	t.Helper()
	path := filepath.Join(t.TempDir(), "may")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nread -r line\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &config.Exec{Argv: []string{path}}
}

func TestWhateverIsNoClearYesIsARefusal(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"purpose":"`+r.Header.Get("Outbox-Purpose")+`"`) || !strings.Contains(string(body), `"subject_id":"shop"`) {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		switch r.URL.Path {
		case "/yes":
		case "/no":
			w.WriteHeader(http.StatusForbidden)
		case "/moved":
			http.Redirect(w, r, "/yes", http.StatusFound)
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(web.Close)
	at := func(path string) *config.HTTP { return &config.HTTP{URL: web.URL + path} }
	sel := func(text string) *config.SQLGuard { return &config.SQLGuard{Select: text} }
	roles := func(r ...string) *config.StaticGuard { return &config.StaticGuard{Roles: r} }
	const no, unasked = "says no", "could not be asked"
	for name, c := range map[string]struct {
		guard config.Guard
		want  string // "": yes
	}{
		"role":                {config.Guard{Static: roles("boss", "clerk")}, ""},
		"other role":          {config.Guard{Static: roles("boss")}, no},
		"exit 0":              {config.Guard{Exec: script(t, `case $line in *'"purpose":"authorize"'*) exit 0;; esac; exit 9`)}, ""},
		"exit 1":              {config.Guard{Exec: script(t, "exit 1")}, no},
		"exit 2":              {config.Guard{Exec: script(t, "exit 2")}, unasked},
		"killed":              {config.Guard{Exec: script(t, "kill -9 $$")}, unasked},
		"too slow":            {config.Guard{Exec: script(t, "exec sleep 60"), Timeout: 100 * time.Millisecond}, unasked},
		"no such program":     {config.Guard{Exec: &config.Exec{Argv: []string{"/no/such/program"}}}, unasked},
		"200":                 {config.Guard{HTTP: at("/yes")}, ""},
		"403":                 {config.Guard{HTTP: at("/no")}, no},
		"500":                 {config.Guard{HTTP: at("/error")}, unasked},
		"redirect to yes":     {config.Guard{HTTP: at("/moved")}, unasked},
		"nobody listens":      {config.Guard{HTTP: &config.HTTP{URL: "http://127.0.0.1:9/"}}, unasked},
		"select 1":            {config.Guard{SQL: sel("SELECT 1")}, ""},
		"select of arguments": {config.Guard{SQL: sel("SELECT :amount = 5 AND :subject_id = 'shop'")}, ""},
		"select 0":            {config.Guard{SQL: sel("SELECT 0")}, no},
		"select null":         {config.Guard{SQL: sel("SELECT NULL")}, no},
		"select text":         {config.Guard{SQL: sel("SELECT 'yes'")}, no},
		"select nothing":      {config.Guard{SQL: sel("SELECT 1 WHERE 0")}, no},
		"select of no table":  {config.Guard{SQL: sel("SELECT 1 FROM missing")}, unasked},
		"select no argument":  {config.Guard{SQL: sel("SELECT :colour")}, unasked},
	} {
		t.Run(name, func(t *testing.T) {
			c.guard.Purpose = "authorize"
			err := set(t, c.guard).Effect(context.Background(), question(t))
			if c.want == "" {
				if err != nil {
					t.Errorf("got %v, want yes", err)
				}
				return
			}
			refusal, ok := errors.AsType[*guard.Refusal](err)
			if !ok || refusal.Reason != guard.Denied || !strings.Contains(refusal.What, c.want) {
				t.Errorf("got %v, want %s: %s", err, guard.Denied, c.want)
			}
			for _, secret := range []string{"s3cret", "127.0.0.1", "/no/such"} {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("the refusal tells %q: %v", secret, err)
				}
			}
		})
	}
}

type goGuard func(context.Context, handler.Call) error

func (g goGuard) Check(ctx context.Context, c handler.Call) error { return g(ctx, c) }

func TestGuardsInGo(t *testing.T) {
	for name, c := range map[string]struct {
		check goGuard
		yes   bool
	}{
		"yes":   {func(_ context.Context, c handler.Call) error { return nil }, true},
		"no":    {func(context.Context, handler.Call) error { return errors.New("no") }, false},
		"panic": {func(context.Context, handler.Call) error { panic("boom") }, false},
		"late":  {func(ctx context.Context, _ handler.Call) error { <-ctx.Done(); return nil }, false},
	} {
		own := []guard.Own{{Purpose: handler.Validate, Guard: c.check, Timeout: 50 * time.Millisecond}}
		s, err := guard.Build(config.Tool{Name: "refund", Timeout: time.Second}, own, false)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Effect(context.Background(), question(t))
		refusal, refused := errors.AsType[*guard.Refusal](err)
		if refused == c.yes || refused && refusal.Reason != guard.Failed {
			t.Errorf("%s: got %v, want yes %v", name, err, c.yes)
		}
	}
	for _, own := range []guard.Own{{Purpose: handler.Validate}, {Purpose: "execute", Guard: goGuard(nil)}} {
		if _, err := guard.Build(config.Tool{}, []guard.Own{own}, false); err == nil {
			t.Errorf("%+v is built", own)
		}
	}
}

func TestEachPurposeIsAskedAtItsTime(t *testing.T) {
	yes, no := &config.SQLGuard{Select: "SELECT 1"}, &config.SQLGuard{Select: "SELECT 0"}
	s := set(t, config.Guard{Purpose: "authorize", SQL: yes}, config.Guard{Purpose: "validate", SQL: no},
		config.Guard{Purpose: "authorize", Static: &config.StaticGuard{Roles: []string{"clerk"}}})
	ctx, q := context.Background(), question(t)
	if err := s.Accept(ctx, q, handler.Authorize); err != nil {
		t.Errorf("authorize: %v", err)
	}
	for name, err := range map[string]error{"validate": s.Accept(ctx, q, handler.Validate), "effect": s.Effect(ctx, q)} {
		if r, ok := errors.AsType[*guard.Refusal](err); !ok || r.Reason != guard.Failed {
			t.Errorf("%s: got %v, want %s", name, err, guard.Failed)
		}
	}
	if err := s.Static(ctx, q); err != nil {
		t.Errorf("static: %v", err)
	}
	q.Roles = nil
	if s.Static(ctx, q) == nil || s.Accept(ctx, q, handler.Authorize) == nil {
		t.Error("nobody tells roles, and that is a yes")
	}
}

type brokenRoles struct{}

func (brokenRoles) Roles(context.Context, contract.Scope) ([]string, error) {
	return []string{"clerk"}, errors.New("directory is down")
}

func TestRolesAreThoseOfTheScopeAtThisMoment(t *testing.T) {
	roles := func(tenant, tool string) string {
		list, _ := clerks.Roles(context.Background(), contract.Scope{Tenant: tenant, Subject: "shop", Tool: tool})
		return strings.Join(list, " ")
	}
	for _, c := range [][3]string{{"acme", "refund", "clerk"}, {"acme", "mail", ""}, {"globex", "mail", "boss"}, {"initech", "refund", ""}} {
		if got := roles(c[0], c[1]); got != c[2] {
			t.Errorf("roles of %s for %s: got %q, want %q", c[0], c[1], got, c[2])
		}
	}
	q := question(t)
	q.Roles = brokenRoles{}
	if set(t, config.Guard{Purpose: "authorize", Static: &config.StaticGuard{Roles: []string{"clerk"}}}).Effect(context.Background(), q) == nil {
		t.Error("roles that could not be asked for are a yes")
	}
}

func TestSQLGuardsOfALocalToolAreAskedInside(t *testing.T) {
	s, err := guard.Build(config.Tool{Name: "refund", Effect: "local", Timeout: time.Second, Guards: []config.Guard{
		{Purpose: "validate", SQL: &config.SQLGuard{Select: "SELECT 0"}},
	}}, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	q := question(t)
	if err := s.Effect(context.Background(), q); err != nil {
		t.Errorf("outside of the transaction: %v", err)
	}
	ledgertest.Write(t, q.File, func(tx *ledger.Tx) error {
		if r, ok := errors.AsType[*guard.Refusal](s.Inside(tx, q.Call)); !ok || r.Reason != guard.Failed {
			t.Errorf("inside: got %v, want %s", r, guard.Failed)
		}
		return nil
	})
	if set(t, config.Guard{Purpose: "validate", SQL: &config.SQLGuard{Select: "SELECT 0"}}).Inside(nil, q.Call) != nil {
		t.Error("a tool that is not local is asked inside")
	}
}
