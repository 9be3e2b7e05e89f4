package audit

import (
	"fmt"

	"github.com/outboxd/outboxd/ledger"
)

// meta is what the whole file knows about itself.
type meta struct{ epoch, lastToken int64 }

// store checks what belongs to no operation.
func (a *auditor) store() error {
	for _, pragma := range [...]string{
		`PRAGMA integrity_check('outbox_meta')`,
		`PRAGMA integrity_check('outbox_intake')`,
		`PRAGMA integrity_check('outbox_refused')`,
		`PRAGMA integrity_check('outbox_operation')`,
		`PRAGMA integrity_check('outbox_entry')`,
		`PRAGMA integrity_check('outbox_attempt')`,
		`PRAGMA integrity_check('outbox_receipt')`,
		`PRAGMA integrity_check('outbox_tool')`,
		`PRAGMA integrity_check('outbox_review')`,
		`PRAGMA integrity_check('outbox_tombstone')`,
		`PRAGMA integrity_check('outbox_session')`,
		`PRAGMA integrity_check('outbox_turn')`,
		`PRAGMA integrity_check('outbox_history')`,
		`PRAGMA integrity_check('outbox_approval')`,
	} {
		if err := a.integrity(pragma); err != nil {
			return err
		}
	}
	for _, pragma := range [...]string{
		`PRAGMA foreign_key_check('outbox_entry')`,
		`PRAGMA foreign_key_check('outbox_attempt')`,
		`PRAGMA foreign_key_check('outbox_receipt')`,
		`PRAGMA foreign_key_check('outbox_review')`,
		`PRAGMA foreign_key_check('outbox_approval')`,
		`PRAGMA foreign_key_check('outbox_turn')`,
		`PRAGMA foreign_key_check('outbox_history')`,
	} {
		if err := a.foreignKeys(pragma); err != nil {
			return err
		}
	}
	if err := a.tombstones(); err != nil {
		return err
	}
	if err := a.decisions(); err != nil {
		return err
	}
	if err := a.told(); err != nil {
		return err
	}
	if err := a.reviews(); err != nil {
		return err
	}
	if err := a.instants(); err != nil {
		return err
	}
	return a.header()
}

// integrity runs SQLite's own check of one table, never of the whole file: an
// application may use collations there that we do not know.
func (a *auditor) integrity(pragma string) error {
	err := a.q.Each(func(r *ledger.Row) error {
		var what string
		if err := r.Scan(&what); err != nil {
			return err
		}
		if what != "ok" {
			a.report.find(StoreContract, "", what)
		}
		return nil
	}, pragma)
	if err != nil {
		return fmt.Errorf("check integrity: %w", err)
	}
	return nil
}

func (a *auditor) foreignKeys(pragma string) error {
	err := a.q.Each(func(r *ledger.Row) error {
		var table, parent string
		var row, key int64
		if err := r.Scan(&table, &row, &parent, &key); err != nil {
			return err
		}
		a.report.find(OperationMissing, "", fmt.Sprintf("row %d of %s refers to no row of %s", row, table, parent))
		return nil
	}, pragma)
	if err != nil {
		return fmt.Errorf("check foreign keys: %w", err)
	}
	return nil
}

// maxToken is 2^53-1.
const maxToken = 1<<53 - 1

func (a *auditor) header() error {
	m := &a.meta
	if err := a.q.One(`SELECT boot_epoch, last_token FROM outbox_meta WHERE id = 1`).Scan(&m.epoch, &m.lastToken); err != nil {
		return fmt.Errorf("read meta: %w", err)
	}
	var generation, commits, by int64
	if err := a.q.One(`SELECT generation, commits, committed_by FROM outbox_meta WHERE id = 1`).Scan(&generation, &commits, &by); err != nil {
		return fmt.Errorf("read meta: %w", err)
	}
	if generation < 1 || m.epoch < 0 || commits < 0 || by < 0 {
		a.report.find(StoreContract, "", "a counter of the file is out of range")
	}
	if m.lastToken < 0 || m.lastToken > maxToken {
		a.report.find(TokenInvalid, "", fmt.Sprintf("last token %d is out of range", m.lastToken))
	}
	return nil
}
