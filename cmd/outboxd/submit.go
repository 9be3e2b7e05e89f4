package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/contract"
)

// keyName is what a key is called in errors.
const keyName = "idempotency_key"

// intent is what the flags of submit say.
type intent struct {
	tool, key, tenant, subject string
	args, notBefore, session   string
	turn                       int64
	wait                       time.Duration
	named                      bool // tenant or subject was given
}

func (a *app) submitCommand() *cobra.Command {
	var in intent
	c := &cobra.Command{
		Use:   "submit --tool T --key K",
		Short: "Hand over an intent: from then on it cannot be lost",
		Long: `Hand over an intent: from then on it cannot be lost.

The same tool, tenant, subject and key with the same request is answered with what
became of the first one, and never done twice; with another request it is refused.
Without a daemon the intent is written to the database and waits for one.`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.StringVar(&in.tool, "tool", "", "name of the tool")
	f.StringVar(&in.key, "key", "", "idempotency key, 1 to 255 bytes")
	f.StringVar(&in.tenant, "tenant", "", "for whom (may be left out where your uid may submit for one tenant and subject only)")
	f.StringVar(&in.subject, "subject", "", "for whom, within the tenant")
	f.StringVar(&in.args, "args", "{}", "arguments: `JSON|@FILE|-`, - being stdin")
	f.StringVar(&in.notBefore, "not-before", "", "earliest `TIME` of the first attempt, as RFC 3339 has it")
	f.DurationVar(&in.wait, "wait", 0, "wait up to `DUR` for a settled state")
	f.StringVar(&in.session, "session", "", "session that the result belongs to")
	f.Int64Var(&in.turn, "turn", 0, "turn of the session")
	c.RunE = a.does(func(ctx context.Context, _ []string) error {
		in.named = c.Flags().Changed("tenant") || c.Flags().Changed("subject")
		return a.submit(ctx, in)
	})
	return c
}

func (a *app) submit(ctx context.Context, in intent) error {
	body, err := a.caseOf(in)
	if err != nil {
		return err
	}
	ans, err := a.handOver(ctx, body, in.wait)
	if err != nil {
		return err
	}
	if err := a.answer(ans); err != nil {
		return err
	}
	return status(ans.Exit(api.Submitted))
}

// handOver submits. Without a daemon nothing settles, so the file is given back
// and a daemon is waited for: the same case is then a repetition.
func (a *app) handOver(ctx context.Context, body api.Case, wait time.Duration) (ans api.Answer, err error) {
	end := time.Now().Add(wait)
	for {
		local := false
		err := a.with(ctx, submits, func(l *link) (err error) {
			if local = l.local; local {
				ans, err = l.Submit(ctx, body, 0)
				return err
			}
			ans, err = l.Submit(ctx, body, max(0, time.Until(end)))
			return err
		})
		if err != nil || !local || ans.Gate != api.Pass || ans.Status == "succeeded" {
			return ans, err
		}
		if !a.daemonAppears(ctx, end) {
			return ans, ctx.Err()
		}
	}
}

// daemonAppears waits for one on the socket, at most until end.
func (a *app) daemonAppears(ctx context.Context, end time.Time) bool {
	socket := a.flags.socket
	if cfg, err := a.load(); err == nil {
		socket = cfg.Listen.Socket
	}
	for socket != "" && time.Now().Before(end) {
		if l, _, err := viaSocket(socket); err == nil && l != nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(min(startTick, time.Until(end))):
		}
	}
	return false
}

// caseOf checks what can be checked here, so that it is told in the same words
// with and without a daemon.
func (a *app) caseOf(in intent) (api.Case, error) {
	body := api.Case{Call: api.CaseCall{Tool: in.tool}, IdempotencyKey: in.key, Session: in.session, Turn: in.turn}
	if in.named {
		body.Principal = &api.Principal{Tenant: in.tenant, Subject: in.subject}
	}
	if err := names(in); err != nil {
		return body, err
	}
	if in.notBefore != "" {
		at, err := time.Parse(time.RFC3339, in.notBefore)
		if err != nil {
			return body, &contract.InputError{Path: "not_before", What: "is no instant", Allowed: "an instant as RFC 3339 has it: 2030-01-31T12:00:00Z"}
		}
		body.NotBefore = at.UTC()
	}
	raw, err := a.input("--args", in.args, contract.MaxBytes)
	if err != nil {
		return body, err
	}
	if body.Call.Arguments, err = contract.Canonical(raw); err != nil {
		return body, under("arguments", err)
	}
	return body, nil
}

func names(in intent) error {
	if err := contract.CheckKey(in.key); err != nil {
		return err
	}
	if err := contract.CheckName("tool_name", in.tool); err != nil {
		return err
	}
	if in.named {
		if err := contract.CheckName("tenant_id", in.tenant); err != nil {
			return err
		}
		if err := contract.CheckName("subject_id", in.subject); err != nil {
			return err
		}
	}
	if in.session != "" {
		return contract.CheckName("session", in.session)
	}
	return nil
}

// under puts the name of an input in front of the path of its error.
func under(name string, err error) error {
	in, ok := errors.AsType[*contract.InputError](err)
	if !ok {
		return err
	}
	at := *in
	at.Path = name + at.Path
	return &at
}

// input is the value of a flag: itself, the file that it names after @, or stdin.
// One byte more than most is read, for the check that refuses it.
func (a *app) input(flag, value string, most int64) ([]byte, error) {
	from := a.stdin
	switch name, isFile := strings.CutPrefix(value, "@"); {
	case isFile:
		f, err := os.Open(name)
		if err != nil {
			return nil, unreadable(flag, err)
		}
		defer func() { _ = f.Close() }() // it was only read
		from = f
	case value != "-":
		return []byte(value), nil
	}
	b, err := io.ReadAll(io.LimitReader(from, most+1))
	if err != nil {
		return nil, unreadable(flag, err)
	}
	return b, nil
}

func unreadable(flag string, err error) error {
	return &coded{"INPUT_IO_ERROR", "the input that " + flag + " names cannot be read: " + withoutPath(err)}
}
