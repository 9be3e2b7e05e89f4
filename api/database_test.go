package api_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/ledger"
	"github.com/outboxd/outboxd/ledgertest"
)

func TestOperatorsBackUpAndNobodyElse(t *testing.T) {
	w := newWorld(t, script{})
	w.accept(opaque, "in the backup")
	to := filepath.Join(t.TempDir(), "backup")
	_, err := w.as(4711).Backup(t.Context(), api.BackupRequest{File: to})
	wants(t, "backup by a stranger", err, 403, "AUTHORIZATION_DENIED")
	for _, file := range []string{"", "backup", "../backup", "/tmp/../tmp/backup", to + "/"} {
		_, err := w.client.Backup(t.Context(), api.BackupRequest{File: file})
		wants(t, "backup to "+file, err, 422, "INPUT_INVALID")
	}
	b, err := w.client.Backup(t.Context(), api.BackupRequest{File: to})
	if err != nil || b.Operations != 1 || b.Bytes == 0 || b.SchemaVersion != ledger.SchemaVersion || b.ForeignTables != 0 {
		t.Errorf("backup: %+v, %v", b, err)
	}
	_, err = w.client.Backup(t.Context(), api.BackupRequest{File: to})
	wants(t, "backup onto a backup", err, 409, "TARGET_EXISTS")
	_, err = w.client.Backup(t.Context(), api.BackupRequest{File: filepath.Join(to, "none")})
	wants(t, "backup into no directory", err, 422, "TARGET_UNUSABLE")
	if strings.Contains(err.Error(), filepath.Dir(to)) {
		t.Errorf("the answer names a path: %v", err)
	}
	ledgertest.Write(t, w.ledger, func(tx *ledger.Tx) error {
		_, err := tx.Exec(`CREATE TABLE customer (name TEXT)`)
		return err
	})
	_, err = w.client.Backup(t.Context(), api.BackupRequest{File: to + "2"})
	wants(t, "backup of an application's file", err, 409, "FOREIGN_TABLES")
	if b, err := w.client.Backup(t.Context(), api.BackupRequest{File: to + "2", ForeignTables: true}); err != nil || b.ForeignTables != 1 {
		t.Errorf("backup with the application's tables: %+v, %v", b, err)
	}
	if _, err := os.Stat(to + "2"); err != nil {
		t.Error(err)
	}
}
