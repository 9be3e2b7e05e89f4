package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"

	"go.uber.org/zap/zapcore"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/daemon"
	"github.com/outboxd/outboxd/lease"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/poller"
)

// The exit statuses. 1 and 2 are also what the API calls a "no" and a failure.
const (
	exitNo     = 1
	exitFailed = 2
	exitCutOff = 3
	exitConfig = 78 // EX_CONFIG of sysexits(3)
)

// exit is the status of a command that has said everything already.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// status makes an exit of a status; nil for 0.
func status(code int) error {
	if code == 0 {
		return nil
	}
	return exit(code)
}

// coded is an error that knows what it is called.
type coded struct{ code, message string }

func (e *coded) Error() string { return e.code + ": " + e.message }

// end says what a command came to and returns the exit status.
func (a *app) end(err error) int {
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exit](err); ok {
		return int(code)
	}
	if problems, ok := errors.AsType[*config.Problems](err); ok {
		a.complain(problems.Error())
		return exitConfig
	}
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Exit() == exitNo {
		if err = a.refusal(p); err == nil {
			return exitNo
		}
	}
	f := failureOf(err)
	line, err := json.Marshal(map[string]any{"error": map[string]string{"code": f.code, "message": capped(f.message)}})
	if err == nil {
		a.complain(string(line))
	}
	if f.code == cutOff {
		return exitCutOff
	}
	return exitFailed
}

// complain says what went wrong. In the journal each line is an error.
func (a *app) complain(text string) {
	if a.journal() {
		prefix := fmt.Sprintf("<%d>", priority(zapcore.ErrorLevel))
		text = prefix + strings.ReplaceAll(text, "\n", "\n"+prefix)
	}
	a.say(text)
}

// say writes to stderr; where that is closed there is nobody to tell.
func (a *app) say(text string) { _, _ = fmt.Fprintln(a.stderr, text) }

const (
	cutOff         = "DRAIN_CUT_OFF"
	socketUnusable = "SOCKET_UNUSABLE"
)

// failureOf gives an error its stable code and a message without path, payload
// and secret.
func failureOf(err error) *coded {
	if c, ok := errors.AsType[*coded](err); ok {
		return c
	}
	if u, ok := errors.AsType[*usageError](err); ok {
		return &coded{"USAGE_ERROR", u.message}
	}
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return &coded{p.Code, strings.TrimLeft(strings.TrimPrefix(p.Error(), p.Code), ":; ")}
	}
	if in, ok := errors.AsType[*contract.InputError](err); ok {
		return &coded{inputCode(in), in.Error()}
	}
	if held, ok := errors.AsType[*lease.HeldError](err); ok {
		return &coded{"ALREADY_RUNNING", held.Error()}
	}
	if errors.Is(err, lease.ErrLockReplaced) && !errors.Is(err, ledger.ErrReplaced) {
		return &coded{ledger.Code(ledger.ErrReplaced), lease.ErrLockReplaced.Error()}
	}
	if code := ledger.Code(err); code != "" {
		hint := ledger.Hint(err)
		if hint == "" {
			hint = "the database answered with an error that is not expected here"
		}
		return &coded{code, hint}
	}
	return otherFailure(err)
}

func inputCode(in *contract.InputError) string {
	if in.Missing && in.Path == keyName {
		return "KEY_REQUIRED"
	}
	return "INPUT_INVALID"
}

func otherFailure(err error) *coded {
	switch {
	case errors.Is(err, poller.ErrUnrecorded): // perhaps beside a drain that was cut off
		return &coded{"OUTCOME_UNRECORDED", poller.ErrUnrecorded.Error()}
	case errors.Is(err, daemon.ErrCutOff):
		return &coded{cutOff, daemon.ErrCutOff.Error()}
	case errors.Is(err, daemon.ErrNoGroup):
		return &coded{"CONFIG_INVALID", daemon.ErrNoGroup.Error()}
	case errors.Is(err, api.ErrAmbiguous):
		return &coded{"AMBIGUOUS", api.ErrAmbiguous.Error()}
	case errors.Is(err, api.ErrUnanswered):
		return &coded{"NO_ANSWER", api.ErrUnanswered.Error()}
	}
	if listen, ok := errors.AsType[*daemon.ListenError](err); ok {
		return listenFailure(listen)
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return &coded{"NO_DAEMON", "no daemon takes connections at the socket"}
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return &coded{"NO_ANSWER", "the connection to the daemon broke: whether the call took place is not known; the same command again is safe"}
	}
	if errors.Is(err, fs.ErrPermission) {
		return &coded{"PERMISSION_DENIED", "this user may not open the database, its lock file or its directory"}
	}
	return &coded{"INTERNAL_ERROR", withoutPath(err)}
}

// listenFailure is why run has no socket. The database is not the matter.
func listenFailure(err *daemon.ListenError) *coded {
	switch {
	case errors.Is(err, api.ErrSocketInUse):
		return &coded{"ALREADY_RUNNING", api.ErrSocketInUse.Error()}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &coded{socketUnusable, "the directory of the socket (listen.socket) does not exist, or is none"}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return &coded{socketUnusable, "this user may not create the socket (listen.socket) in its directory"}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &coded{"DISK_FULL", "there is no space for the socket (listen.socket) in its directory"}
	}
	return &coded{socketUnusable, "the socket (listen.socket) cannot be used: " + withoutPath(err.Err)}
}

// withoutPath is the text of an error; of one that carries a path only what the
// system said.
func withoutPath(err error) string {
	_, inPath := errors.AsType[*fs.PathError](err)
	_, inLink := errors.AsType[*os.LinkError](err)
	_, inSyscall := errors.AsType[*os.SyscallError](err)
	if errno, ok := errors.AsType[syscall.Errno](err); ok && (inPath || inLink || inSyscall) {
		return errno.Error()
	}
	if inPath || inLink {
		return "a file could not be used"
	}
	return err.Error()
}

// longest is how many bytes a message may have.
const longest = 1000

func capped(s string) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}
