package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/lease"
	"github.com/outboxd/outboxd/ledger"
)

// Made is what Init or Migrate found and did.
type Made struct {
	Created bool  // the file was not there, or empty
	From    int64 // schema version before; 0: no outbox tables
	To      int64
}

// Init creates the file and its tables where they are missing.
func Init(ctx context.Context, cfg *config.Config, o Options) (m Made, err error) {
	st, missing := os.Stat(cfg.Database.Path)
	m.Created = missing != nil || st.Size() == 0
	err = withFile(ctx, cfg, o, lease.Shared, "db init", ledger.Options{Create: true}, &m)
	if _, held := errors.AsType[*lease.HeldError](err); held && !m.Created {
		return m, withoutLock(ctx, cfg, &m)
	}
	return m, err
}

// withoutLock looks at a file that a daemon has.
func withoutLock(ctx context.Context, cfg *config.Config, m *Made) error {
	l, err := ledger.Open(ctx, cfg.Database.Path, ledger.Options{ReadOnly: true, Readers: 1, AllowNetworkFS: cfg.Database.AllowNetworkFS})
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	m.From, m.To = ledger.SchemaVersion, ledger.SchemaVersion
	return l.Close()
}

// Migrate brings an older schema up to date, alone on the file. step is told of
// each step before it is done.
func Migrate(ctx context.Context, cfg *config.Config, o Options, step func(from, to int64)) (m Made, err error) {
	if _, err := os.Stat(cfg.Database.Path); err != nil {
		return m, ledger.ErrNotFound
	}
	return m, withFile(ctx, cfg, o, lease.Exclusive, "db migrate", ledger.Options{
		Migrate: true, Migrating: func(from, to int64) {
			if m.From == 0 {
				m.From = from
			}
			step(from, to)
		}}, &m)
}

// withFile opens the file under the lock and closes it.
func withFile(ctx context.Context, cfg *config.Config, o Options, mode lease.Mode, command string, lo ledger.Options, m *Made) (err error) {
	lock, err := lockFor(ctx, cfg, o, mode, command)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	lo.Readers, lo.AllowNetworkFS, lo.Now, lo.Complete = 1, cfg.Database.AllowNetworkFS, o.Now, lock.Failed()
	if lo.Group, err = Group(cfg); err != nil {
		return err
	}
	l, err := ledger.Open(ctx, cfg.Database.Path, lo)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	if m.To = ledger.SchemaVersion; m.From == 0 && !m.Created {
		m.From = m.To
	}
	return l.Close()
}

func lockFor(ctx context.Context, cfg *config.Config, o Options, mode lease.Mode, command string) (*lease.Lock, error) {
	now := time.Now
	if o.Now != nil {
		now = o.Now
	}
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	return lease.Acquire(waiting, cfg.Database.Path, mode,
		lease.Holder{PID: os.Getpid(), Command: command, Since: now().Truncate(time.Second)})
}

// Restore puts a backup in the place of the database, alone on the file.
func Restore(ctx context.Context, cfg *config.Config, o Options, from string, co ledger.CopyOptions) (r ledger.Restored, err error) {
	lock, err := lockFor(ctx, cfg, o, lease.Exclusive, "db restore")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	now := time.Now()
	if o.Now != nil {
		now = o.Now()
	}
	return ledger.Restore(ctx, cfg.Database.Path, from, co, now)
}

// ErrNoGroup says that database.application_group names no group of this host.
var ErrNoGroup = errors.New("database.application_group: there is no such group on this host")

// Group is the number of the application group; 0: there is none, or ErrNoGroup.
func Group(cfg *config.Config) (int, error) {
	name := cfg.Database.ApplicationGroup
	if name == "" {
		return 0, nil
	}
	if g, err := user.LookupGroup(name); err == nil {
		name = g.Gid
	}
	gid, err := strconv.Atoi(name)
	if err != nil || gid <= 0 {
		return 0, ErrNoGroup
	}
	return gid, nil
}
