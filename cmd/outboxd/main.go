// Command outboxd is the words of outboxd on a command line: what a command is
// called, what it prints and with which status it exits.
//
// It promises that data goes to stdout and talk to stderr; that 0 is verified
// success, 1 an expected "no", 2 could not be done (with one JSON line on stderr,
// free of paths, payloads and secrets), 3 a drain that was cut off, 78 a wrong
// config; and that a command does the same through a daemon and without one.
//
// What is done is the API's to decide: each command is one call of it.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}
