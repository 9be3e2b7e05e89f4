package handler_test

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/handler"
)

// mortal makes the test binary a daemon that runs the script in it and waits
// to be killed.
const mortal = "HANDLER_TEST_MORTAL"

func TestMain(m *testing.M) {
	if script := os.Getenv(mortal); script != "" {
		pair, err := handler.Build(shell(script))
		if err != nil {
			os.Exit(2)
		}
		pair.Handler.Execute(context.Background(), call())
		os.Exit(3)
	}
	goleak.VerifyTestMain(m)
}

func call() handler.Call {
	return handler.Call{
		Purpose: handler.Execute, StatusRef: "01890000-0000-7000-8000-000000000001", Tool: "refund",
		Tenant: "acme", Subject: "shop", Key: "order-17", WireKey: "wk-17", Attempt: 3, Token: 1234567890123456,
		Arguments:   []byte(`{"amount":"12.50","order":"order-17"}`),
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

func build(t *testing.T, tool config.Tool) handler.Pair {
	t.Helper()
	pair, err := handler.Build(tool)
	if err != nil {
		t.Fatalf("Build(%s) = %v", tool.Name, err)
	}
	t.Cleanup(pair.Close)
	return pair
}

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func shell(script string) config.Tool {
	return config.Tool{
		Name: "script", Effect: "opaque", Concurrency: 1,
		Exec: &config.Exec{Argv: []string{"/bin/sh", "-c", script}, Rejected: []int{3}, TryAgain: []int{75}},
	}
}

func post(url string) config.Tool {
	return config.Tool{Name: "hook", Effect: "idempotent", Concurrency: 4, HTTP: &config.HTTP{URL: url, Method: "POST"}}
}

// say writes to a peer that may be gone.
func say(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

// swallow reads a peer that may be gone.
func swallow(r io.Reader) string {
	text, _ := io.ReadAll(r)
	return string(text)
}
