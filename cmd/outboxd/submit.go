package main

import (
	"context"
	"errors"
	"fmt"
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
	named, turned              bool // tenant or subject, or a turn, was given
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
		in.turned = c.Flags().Changed("turn")
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
	if err := in.times(&body); err != nil {
		return body, err
	}
	raw, err := a.input("--args", in.args)
	if err != nil {
		return body, err
	}
	if body.Call.Arguments, err = contract.Canonical(raw); err != nil {
		return body, under("arguments", err)
	}
	return body, nil
}

// times checks what is told in numbers. Zero is not the same as nothing.
func (in intent) times(body *api.Case) error {
	if in.wait < 0 || in.wait > api.MaxWait {
		return &contract.InputError{Path: "wait", What: "is out of range", Allowed: "0s to 1h, with a unit"}
	}
	if in.turned && in.turn == 0 {
		return &contract.InputError{Path: "turn", What: "is out of range", Allowed: "1 to 2^53-1, or nothing"}
	}
	if in.notBefore == "" {
		return nil
	}
	at, err := time.Parse(time.RFC3339, in.notBefore)
	if err != nil {
		return &contract.InputError{Path: "not_before", What: "is no instant", Allowed: "an instant as RFC 3339 has it: 2030-01-31T12:00:00Z"}
	}
	if at.IsZero() {
		return &contract.InputError{Path: "not_before", What: "is out of range", Allowed: "an instant of the years 1970 to 9999, or nothing"}
	}
	body.NotBefore = at.UTC()
	return nil
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
// White space around JSON is no part of it, so more is read than a value may have.
func (a *app) input(flag, value string) ([]byte, error) {
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
	b, err := io.ReadAll(io.LimitReader(from, api.MaxBody+1))
	if err != nil {
		return nil, unreadable(flag, err)
	}
	if len(b) > api.MaxBody {
		return nil, &contract.InputError{
			Path: "arguments", What: fmt.Sprintf("more than %d bytes with the white space around it", api.MaxBody),
			Allowed: fmt.Sprintf("at most %d bytes of JSON", contract.MaxBytes),
		}
	}
	return b, nil
}

func unreadable(flag string, err error) error {
	return &coded{"INPUT_IO_ERROR", "the input that " + flag + " names cannot be read: " + withoutPath(err)}
}
