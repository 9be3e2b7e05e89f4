// Package demo shows on a temporary file what outboxd promises, to a person who
// has never seen it, and checks every claim that it makes on the way.
//
// It decides what is shown and what is expected. The daemon and the downstream
// are processes of their own, started from the same binary: the daemon can be
// killed like any other, and what really happened is counted by the downstream
// alone. It promises that nothing is left behind, neither a process nor a
// directory, however it ends short of SIGKILL; and no process even then.
package demo
