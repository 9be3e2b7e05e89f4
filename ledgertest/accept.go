package ledgertest

import (
	"testing"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/entry"
	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// Registry is a registry of these tools, completed with the defaults.
func Registry(t testing.TB, tools ...config.Tool) *contract.Registry {
	t.Helper()
	defaults := config.Default()
	completed := make([]config.Tool, len(tools))
	for i, tool := range tools {
		var err error
		if completed[i], err = defaults.Tool(tool); err != nil {
			t.Fatalf("complete tool %q: %v", tool.Name, err)
		}
	}
	reg, err := contract.NewRegistry(completed)
	if err != nil {
		t.Fatalf("make registry: %v", err)
	}
	return reg
}

// Tool is a tool with a handler in Go. A queryable one names a place to ask
// where nobody answers: tests bring their own.
func Tool(name string, effect entry.Effect) config.Tool {
	tool := config.Tool{Name: name, Effect: string(effect)}
	if effect == entry.Queryable {
		tool.Query = &config.Query{HTTP: &config.HTTP{URL: "http://127.0.0.1:9/{key}"}}
	}
	return tool
}

// Request is a valid request to a tool: tenant acme, subject shop.
func Request(tool, key string) intake.Request {
	return intake.Request{
		Scope:     contract.Scope{Tenant: "acme", Subject: "shop", Tool: tool, Key: key},
		Arguments: []byte(`{"order":17}`),
	}
}

// Accept accepts a request and fails the test if it cannot be accepted.
func Accept(t testing.TB, l *ledger.Ledger, reg *contract.Registry, r intake.Request) intake.Accepted {
	t.Helper()
	p, err := intake.Prepare(reg, r)
	if err != nil {
		t.Fatalf("prepare %q: %v", r.Scope.Key, err)
	}
	var a intake.Accepted
	Write(t, l, func(tx *ledger.Tx) error {
		a, err = p.Accept(tx)
		return err
	})
	return a
}
