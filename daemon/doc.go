// Package daemon decides in which order things start and stop.
//
// Starting: the lock, the file with its boot record, the takeover of what a dead
// daemon had claimed, the handlers, the socket, and only then "ready". Stopping:
// claiming ends first, what runs is waited for until the drain limit and then
// cut off, its outcomes are recorded, and only then do leases, socket, file and
// lock go. Nothing that was started outlives Run.
//
// A program embeds it with Run and tools of its own, whose handlers are Go
// functions.
package daemon
