// Package chaos breaks the world around a real daemon and asks an independent
// witness what really happened.
//
// It decides how the daemon is killed, stopped and starved, and what must be
// true afterwards. The daemon and the downstream are processes of their own: the
// daemon is the shipped binary and can be killed at any moment; the downstream,
// Witness, survives it and writes down every request and every effect before it
// answers. It promises that a run which injected nothing does not pass.
//
// It leaves to the packages themselves what can be shown inside one process.
package chaos
