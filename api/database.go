package api

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/outboxd/outboxd/intake"
	"github.com/outboxd/outboxd/ledger"
)

// careTime is how long a backup or a purge may take. One runs at a time.
const careTime = time.Hour

// BackupRequest asks for a copy of the database. The file is written by the user
// that the database is open for: the daemon's, where there is one.
type BackupRequest struct {
	File          string `json:"file"`                    // absolute
	ForeignTables bool   `json:"foreign_tables,omitzero"` // also where the file is the application's own
	Replace       bool   `json:"replace,omitzero"`        // an earlier backup of that name
}

// Backup is what a backup holds.
type Backup struct {
	Bytes         int64  `json:"bytes"`
	Operations    int64  `json:"operations"`
	SchemaVersion int64  `json:"schema_version"`
	Lineage       string `json:"lineage"`
	Generation    int64  `json:"generation"`
	ForeignTables int    `json:"foreign_tables,omitzero"` // how many of the application's own
	Milliseconds  int64  `json:"ms"`
}

// BackupOf tells of a copy.
func BackupOf(c ledger.Copied) Backup {
	return Backup{c.Bytes, c.Operations, c.SchemaVersion, c.Lineage, c.Generation, c.Foreign, c.Took.Milliseconds()}
}

// Purge is what a purge removed.
type Purge struct {
	Operations int `json:"operations"`
	Refused    int `json:"refused"`
	Tombstones int `json:"tombstones"`
	Kept       int `json:"kept"` // old enough, but the file does not let them go
}

func (s *API) backup(c *call) (reply, error) {
	var body BackupRequest
	if err := c.body(&body); err != nil {
		return reply{}, err
	}
	if !filepath.IsAbs(body.File) || filepath.Clean(body.File) != body.File {
		return reply{}, invalid(InputError{"file", "is no clean absolute path", "as /var/backups/outbox.db"})
	}
	var copied ledger.Copied
	err := s.care(c, func(ctx context.Context) (err error) {
		copied, err = s.d.Ledger.Backup(ctx, body.File, ledger.CopyOptions{Foreign: body.ForeignTables, Replace: body.Replace})
		return err
	})
	if err != nil {
		return reply{}, fmt.Errorf("back up: %w", err)
	}
	return ok(BackupOf(copied))
}

func (s *API) purge(c *call) (reply, error) {
	if err := c.body(&struct{}{}); err != nil {
		return reply{}, err
	}
	var sum intake.Purged
	err := s.care(c, func(ctx context.Context) (err error) {
		sum, err = s.d.Purge(ctx)
		return err
	})
	if err != nil {
		return reply{}, err
	}
	return ok(Purge{sum.Operations, sum.Refused, sum.Tombstones, sum.Kept})
}

// care does what takes long, in its place.
func (s *API) care(c *call, do func(context.Context) error) error {
	leave, err := s.place(c, s.cares)
	if err != nil {
		return err
	}
	defer leave()
	c.allow(careTime)
	ctx, cancel := context.WithTimeout(c.Context(), careTime)
	defer cancel()
	if err := do(ctx); err != nil {
		return errors.Join(ctx.Err(), err) // an interrupted statement does not say why
	}
	return nil
}

// Backup copies the database into a file that the other end writes.
func (c *Client) Backup(ctx context.Context, r BackupRequest) (b Backup, err error) {
	return b, c.call(ctx, "POST", "/v1/db/backup", nil, r, &b)
}

// Purge removes what is older than the retention.
func (c *Client) Purge(ctx context.Context) (p Purge, err error) {
	return p, c.call(ctx, "POST", "/v1/db/purge", nil, nil, &p)
}
