package ledger

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/google/uuid"

	"github.com/outboxd/outboxd/chaos/point"
)

// The migrations, in the order of their names. One that was ever released is
// never changed.
//
//go:embed migrations/*.sql
var files embed.FS

var migrations = readMigrations()

// SchemaVersion is the version that this program reads and writes.
var SchemaVersion = int64(len(migrations))

func readMigrations() (list []string) {
	names, err := fs.Glob(files, "migrations/*.sql") // sorted
	if err != nil {
		panic(err) // the pattern is wrong
	}
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			panic(err) // embedded, so it is there
		}
		list = append(list, string(text))
	}
	return list
}

// migrate brings an existing schema up to date, each step in a transaction of its
// own with its version, so that a kill leaves the file before or after a step.
func (l *Ledger) migrate(c *conn) error {
	for {
		more, err := l.step(c)
		if err != nil {
			_ = c.control(rollback) // the error that led here is the one to report
			return fmt.Errorf("migrate: %w", openError(err))
		}
		if !more {
			return nil
		}
	}
}

// step does the next migration, if there is one to do.
func (l *Ledger) step(c *conn) (more bool, err error) {
	version, err := schemaVersion(c.one)
	if err != nil || version == 0 || version >= SchemaVersion {
		return false, err
	}
	if !l.opts.Migrate {
		return false, ErrOlder
	}
	l.opts.Migrating(version, SchemaVersion)
	if err := c.control(begin); err != nil {
		return false, err
	}
	again, err := schemaVersion(c.one) // another process may have been faster
	if err != nil || again != version {
		return err == nil, firstError(err, c.control(rollback))
	}
	if err := runMigration(c, version); err != nil {
		return false, err
	}
	if _, err := c.exec(`UPDATE outbox_meta SET schema_version = ? WHERE id = 1`, version+1); err != nil {
		return false, err
	}
	point.Hit(point.Migrate.Before())
	if err := c.control(commit); err != nil {
		return false, err
	}
	point.Hit(point.Migrate.After())
	return true, nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// runMigration executes the statements that lead from version to the next.
func runMigration(c *conn, version int64) error {
	for _, stmt := range strings.Split(migrations[version], ";\n") {
		if strings.TrimSpace(stmt) == "" {
			continue
		}
		if _, err := c.exec(stmt); err != nil {
			return fmt.Errorf("schema version %d: %w", version+1, err)
		}
	}
	return nil
}

// createSchema makes all tables in the transaction that is open.
func createSchema(c *conn, forChaos bool) error {
	for version := range SchemaVersion {
		if err := runMigration(c, version); err != nil {
			return fmt.Errorf("create tables: %w", err)
		}
	}
	lineage, err := uuid.NewRandom()
	if err != nil {
		return fmt.Errorf("make lineage: %w", err)
	}
	_, err = c.exec(`INSERT INTO outbox_meta (id, schema_version, lineage, for_chaos) VALUES (1, ?, ?, ?)`,
		SchemaVersion, lineage.String(), forChaos)
	return err
}
