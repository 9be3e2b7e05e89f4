// Package ledger is the file: how it is opened, migrated, written and read.
//
// It decides that every write of a process goes through one committer, which
// gathers what waits, runs each closure in a savepoint of its own and commits
// once at synchronous=FULL before anybody is answered. It promises that Write
// returns nil only after that commit, that a closure which destroys the
// transaction takes no other closure with it, and that an error from COMMIT is
// never taken for "not committed".
//
// It leaves to others what is written: each table has one writing package, and
// this one writes outbox_meta only.
//
// A program that embeds outboxd must open the same file with this driver and
// no other: SQLite's POSIX locks belong to the process, and closing any other
// descriptor of the database, its -wal or its -shm drops them.
package ledger
