package api

import (
	"context"
	"errors"
	"net/http"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/contract"
	"github.com/outboxd/outboxd/deadletter"
	"github.com/outboxd/outboxd/ledger"
)

// Problem is an error of the API as RFC 9457 describes it, with a stable code.
// It holds no payload, no path and no secret.
type Problem struct {
	Title  string       `json:"title"`
	Status int          `json:"status"` // HTTP
	Detail string       `json:"detail,omitzero"`
	Code   string       `json:"code"`
	Gate   string       `json:"gate,omitzero"`   // BLOCK where it is a verdict about an operation
	State  string       `json:"state,omitzero"`  // a review that is refused: the status at present
	Fields []string     `json:"fields,omitzero"` // IDEMPOTENCY_CONFLICT: what differs, names only
	Errors []InputError `json:"errors,omitzero"` // INPUT_INVALID, KEY_REQUIRED
}

// InputError says what is wrong in a request.
type InputError struct {
	Path    string `json:"path"` // JSON Pointer or name; empty: the whole
	What    string `json:"what"`
	Allowed string `json:"allowed"`
}

// Error is the code, with the detail where there is one.
func (p *Problem) Error() string {
	text := p.Code
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	for _, e := range p.Errors {
		text += "; " + (&contract.InputError{Path: e.Path, What: e.What, Allowed: e.Allowed}).Error()
	}
	return text
}

// Exit is the exit status of a command that ends with this problem: 1 where "no"
// is a verdict, 2 where it could not be done.
func (p *Problem) Exit() int {
	if p.Gate == Block {
		return 1
	}
	return 2
}

// kinds are the codes that this package gives itself, with what they come with.
var kinds = map[string]struct {
	status int
	gate   string
	detail string
}{
	"NOT_FOUND":              {http.StatusNotFound, Block, "no such operation, or it is not yours"},
	"IDEMPOTENCY_CONFLICT":   {http.StatusConflict, Block, "this key was used for another request"},
	"ALREADY_PURGED":         {http.StatusGone, Block, "this request was accepted before, has ended and was purged: nothing is sent"},
	"SESSION_EXISTS":         {http.StatusConflict, Block, "a session of this name exists or existed: no name comes twice"},
	"TURN_MOVED":             {http.StatusConflict, Block, ""},
	"AUTHORIZATION_DENIED":   {http.StatusForbidden, Block, "your uid may not do this"},
	"NOT_WAITING":            {http.StatusConflict, Block, "the operation does not wait for an approval: it never did, somebody was first, or its deadline has passed"},
	"PRECONDITION_FAILED":    {http.StatusPreconditionFailed, Block, "the tool's guards say that it makes no sense now; nothing was done"},
	"KEY_REQUIRED":           {http.StatusUnprocessableEntity, "", "an idempotency key is required"},
	"INPUT_INVALID":          {http.StatusUnprocessableEntity, "", "the request is not valid"},
	"TOOL_UNKNOWN":           {http.StatusUnprocessableEntity, "", "no such tool is configured"},
	"BODY_TOO_LARGE":         {http.StatusRequestEntityTooLarge, "", "the body has more than 262144 bytes"},
	"BODY_LATE":              {http.StatusRequestTimeout, "", "the body did not arrive in time; nothing was done"},
	"BODY_INCOMPLETE":        {http.StatusBadRequest, "", "the body broke off; nothing was done"},
	"UNSUPPORTED_MEDIA_TYPE": {http.StatusUnsupportedMediaType, "", "a body must have Content-Type: application/json, in UTF-8, and no encoding"},
	"FOREIGN_ORIGIN":         {http.StatusForbidden, "", "requests of web pages are refused"},
	"NO_SUCH_ROUTE":          {http.StatusNotFound, "", "this version has no such route"},
	"METHOD_NOT_ALLOWED":     {http.StatusMethodNotAllowed, "", "not with this method"},
	"DISK_FULL":              {http.StatusInsufficientStorage, "", ledger.ErrDiskFull.Error()},
	"DATABASE_BUSY":          {http.StatusServiceUnavailable, "", "the database's write lock, or a free reader, was not to be had in time, or reading took too long; nothing was done"},
	"HELD":                   {http.StatusServiceUnavailable, "", ledger.ErrHeld.Error()},
	"FOREIGN_TABLES":         {http.StatusConflict, "", ledger.ErrForeign.Error()},
	"TARGET_EXISTS":          {http.StatusConflict, "", ledger.ErrExists.Error()},
	"TARGET_UNUSABLE":        {http.StatusUnprocessableEntity, "", ledger.ErrTarget.Error()},
	"DATABASE_REPLACED":      {http.StatusServiceUnavailable, "", ledger.ErrReplaced.Error()},
	"CLOSED":                 {http.StatusServiceUnavailable, "", "the daemon is stopping, or the database is open for reading only"},
	"STORE_CONTRACT_ERROR":   {http.StatusInternalServerError, "", "a stored row is not what was written: run outboxd audit"},
	"CONFIG_INVALID":         {http.StatusUnprocessableEntity, "", "the config is wrong: the daemon goes on with the old one"},
	"INTERNAL_ERROR":         {http.StatusInternalServerError, "", "see the daemon's log"},

	// Reviews that are not carried out; state is how the operation stands.
	deadletter.AlreadyDelivered: {http.StatusConflict, Block, "a review of what is done"},
	deadletter.AlreadyDiscarded: {http.StatusConflict, Block, "a review of what has been discarded"},
	deadletter.InProgress:       {http.StatusConflict, Block, "a review or a cancel while an attempt is under way"},
	deadletter.NotGivenUp:       {http.StatusConflict, Block, "a review of what goes on by itself"},
	deadletter.GivenUp:          {http.StatusConflict, Block, "a cancel of what is dead or unknown"},
	deadletter.NotUnknown:       {http.StatusConflict, Block, "a resolve of what is known to have had no effect"},
	deadletter.AttemptRunning:   {http.StatusConflict, Block, "a new round before the last attempt is known to be over"},
	deadletter.DuplicateRisk:    {http.StatusConflict, Block, "a retry that may have a second effect, and nobody accepts that"},
	deadletter.ContractDrift:    {http.StatusConflict, Block, "a retry of an operation whose tool has changed since it was accepted"},
	deadletter.NotConfigured:    {http.StatusConflict, Block, "a contract is to be accepted, and the tool is not configured"},
	deadletter.OtherTool:        {http.StatusConflict, Block, "a review that names another tool than the operation's"},
}

func problem(code string) *Problem {
	k := kinds[code]
	return &Problem{Title: http.StatusText(k.status), Status: k.status, Detail: k.detail, Code: code, Gate: k.gate}
}

func invalid(errs ...InputError) *Problem {
	p := problem("INPUT_INVALID")
	p.Errors = errs
	return p
}

// undecided: the disk was full at the commit, and the ledger has yet to find out
// what became of it.
func undecided() *Problem {
	p := problem("DISK_FULL")
	p.Detail = "the disk was full at the commit: whether the request was accepted is not known yet; submit the same key again"
	return p
}

// errAltered: a stored row does not fit its own digest.
var errAltered = errors.New("stored result is not what was recorded")

// problemOf is what a caller is told of an error.
func problemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if in, ok := errors.AsType[*contract.InputError](err); ok {
		return invalid(InputError{in.Path, in.What, in.Allowed})
	}
	if errors.Is(err, ledger.ErrCommitUnknown) {
		return undecided()
	}
	code := ledger.Code(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = "DATABASE_BUSY"
	case errors.Is(err, errAltered):
		code = "STORE_CONTRACT_ERROR"
	}
	if _, ok := kinds[code]; !ok {
		code = "INTERNAL_ERROR"
	}
	return problem(code)
}

// fail answers with a problem, or not at all: where only the next start can find
// out whether a commit took place, or nobody listens any more, the connection is
// cut. A body that breaks off ends the request's context, but is answered.
func (s *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	lost := errors.Is(err, ledger.ErrCommitUnknown) && s.d.Ledger.Err() != nil
	_, decided := errors.AsType[*Problem](err)
	if lost || r.Context().Err() != nil && !decided {
		panic(http.ErrAbortHandler)
	}
	p := problemOf(err)
	if p.Status == http.StatusInternalServerError {
		s.d.Log.Error("request failed", zap.String("route", r.Pattern), zap.String("code", p.Code), zap.Error(err))
	}
	writeProblem(w, p)
}
