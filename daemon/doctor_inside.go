package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

// largeLog is the size of the log from which something keeps it from being reused,
// in bytes.
const largeLog = 64 << 20

// users tells who has the file open, and who reads from a log that has grown.
func (x *doctor) users() {
	list, err := ledger.Users(x.path)
	if err != nil {
		x.say("in use", Warn, "who has the file open cannot be seen here", "")
		return
	}
	var all, readers []string
	for _, u := range list {
		if u.PID == os.Getpid() {
			continue
		}
		name := fmt.Sprintf("%d (%s)", u.PID, u.Command)
		all = append(all, name)
		if u.Reading {
			readers = append(readers, name)
		}
	}
	if len(all) == 0 {
		x.ok("in use", "no process is seen that has the file open")
	} else {
		x.ok("in use", "by %s", strings.Join(all, ", "))
	}
	x.log(readers)
}

func (x *doctor) log(readers []string) {
	f, err := lookAt(x.path + "-wal")
	if err != nil || f.size < largeLog {
		x.ok("log", "%s", size(uint64(max(0, f.size))))
		return
	}
	do := "if it does not shrink when the load ends, look for a process that keeps a read transaction open"
	if len(readers) > 0 {
		do = "these processes read at this moment, and one that never ends its transaction keeps the log growing: " + strings.Join(readers, ", ")
	}
	x.say("log", Warn, "the write-ahead log has "+size(uint64(f.size)), do)
}

// inside reads the file through SQLite, where this user may.
func (x *doctor) inside(ctx context.Context) {
	l, err := ledger.Open(ctx, x.path, ledger.Options{ReadOnly: true, Readers: 1, AllowNetworkFS: true})
	if err != nil {
		x.say("database", refusal(err), firstOf(ledger.Hint(err), "the file cannot be opened"), "")
		return
	}
	err = l.Read(ctx, func(v *ledger.View) error {
		return errors.Join(x.mode(v), x.meta(v), x.strangers(v), x.rows(v))
	})
	if err = errors.Join(err, l.Close()); err != nil {
		x.say("database", Fail, "it cannot be read: "+firstOf(ledger.Hint(err), "SQLite answers with an error"), "outboxd audit")
	}
}

// refusal: another user, and a version that the next start brings up to date, are
// nothing that is broken.
func refusal(err error) Level {
	if _, ok := errors.AsType[*ledger.WrongUserError](err); ok || errors.Is(err, ledger.ErrOlder) || errors.Is(err, ledger.ErrNoSchema) {
		return Warn
	}
	return Fail
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

func (x *doctor) mode(v *ledger.View) error {
	var mode string
	if err := v.One(`PRAGMA journal_mode`).Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		x.say("journal mode", Fail, mode+", which the daemon refuses", "with no other connection open: PRAGMA journal_mode=WAL")
		return nil
	}
	x.ok("journal mode", "wal")
	return nil
}

func (x *doctor) meta(v *ledger.View) error {
	var version, generation, token int64
	var lineage string
	var restored time.Time
	err := v.One(`SELECT schema_version, lineage, generation, last_token, restored_at FROM outbox_meta WHERE id = 1`).
		Scan(&version, &lineage, &generation, &token, &restored)
	if err != nil {
		return err
	}
	x.ok("schema", "version %d, lineage %s, generation %d", version, lineage, generation)
	if ahead := time.UnixMicro(token).Sub(x.now()); ahead > time.Minute {
		x.say("clock and tokens", Warn, fmt.Sprintf("the last fencing token was given out at a time that is %s ahead of the clock", ahead.Round(time.Second)),
			"set the clock right: what is due by the wrong one waits; tokens go on rising all the same")
	}
	if !restored.IsZero() {
		x.say("restored", Warn, "the file was put back from a backup at "+restored.UTC().Format(time.RFC3339), "see the restore drill in docs/database.md")
	}
	return nil
}

// strangers are what an application attached to our tables.
func (x *doctor) strangers(v *ledger.View) error {
	var triggers, references []string
	collect := func(into *[]string) func(*ledger.Row) error {
		return func(r *ledger.Row) error {
			var name string
			err := r.Scan(&name)
			*into = append(*into, name)
			return err
		}
	}
	err := errors.Join(
		v.Each(collect(&triggers), `SELECT substr(name, 1, 100) FROM sqlite_schema WHERE type = 'trigger' AND tbl_name LIKE 'outbox\_%' ESCAPE '\' ORDER BY 1`),
		v.Each(collect(&references), `SELECT DISTINCT substr(m.name, 1, 100) FROM sqlite_schema m, pragma_foreign_key_list(m.name) f
			WHERE m.type = 'table' AND m.name NOT LIKE 'outbox\_%' ESCAPE '\' AND f."table" LIKE 'outbox\_%' ESCAPE '\' ORDER BY 1`))
	if err != nil {
		return err
	}
	if len(triggers) > 0 {
		x.say("triggers", Warn, "the application has triggers on outbox tables: "+strings.Join(triggers, ", "),
			"one that refuses a statement holds up that row; one that changes rows breaks what outboxd audit checks")
	} else {
		x.ok("triggers", "none on outbox tables")
	}
	if len(references) > 0 {
		x.say("references", Warn, "tables of the application refer to outbox tables: "+strings.Join(references, ", "), "what they refer to is never purged")
	}
	return nil
}

// rows counts what waits for somebody.
func (x *doctor) rows(v *ledger.View) error {
	var dead, unknown, parked int
	err := v.One(`SELECT (SELECT count(*) FROM outbox_entry WHERE state = 'dead'),
		(SELECT count(*) FROM outbox_entry WHERE state = 'unknown' AND due_at IS NULL),
		(SELECT count(*) FROM outbox_intake WHERE parked = 1)`).Scan(&dead, &unknown, &parked)
	if err != nil {
		return err
	}
	if dead+unknown+parked > 0 {
		x.say("waiting for a person", Warn, fmt.Sprintf("%d dead, %d unknown and held, %d intake rows parked", dead, unknown, parked), "outboxd list --state dead,unknown; outboxd tool list")
		return nil
	}
	x.ok("waiting for a person", "nothing")
	return nil
}
