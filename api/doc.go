// Package api is the one programme interface: JSON over HTTP, answered over a
// unix socket or, through Local, in the process that opened the file. The
// command line is a client of it.
//
// It decides what each state of an operation is called towards a caller (the
// table in answer.go), who may submit, see and control what, and which requests
// are refused before anything is looked at. It promises that nothing is answered
// as accepted before it is durable; that what a caller may not see is answered
// exactly as what does not exist; and that no error carries a payload, a path or
// a secret.
//
// The peer's uid, as the kernel tells it, is the only identity. Whoever may
// connect may read /metrics, /livez and /readyz, which name tools but no
// operations.
//
// It leaves to others what is accepted (intake), what runs (poller), and what is
// sound (audit).
package api
