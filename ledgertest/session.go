package ledgertest

import (
	"testing"

	"github.com/outboxd/outboxd/ledger"
)

// Session opens a session that has had so many turns, the last of them open. It
// belongs to tenant acme and subject shop unless others are named.
func Session(t testing.TB, l *ledger.Ledger, name string, turn int64, owner ...string) {
	t.Helper()
	if len(owner) == 0 {
		owner = []string{"acme", "shop"}
	}
	Write(t, l, func(tx *ledger.Tx) error {
		id, _, err := tx.Insert(`INSERT INTO outbox_session (tenant_id, subject_id, session_id, turn, opened_at)
			VALUES (?, ?, ?, ?, ?)`, owner[0], owner[1], name, turn, tx.Now())
		for n := int64(1); n <= turn && err == nil; n++ {
			_, err = tx.Exec(`INSERT INTO outbox_turn (session, turn, opened_at, first_row, closed_at, last_row, ended)
				VALUES (?1, ?2, ?3, 0, IIF(?2 < ?4, ?3, NULL), IIF(?2 < ?4, 0, NULL), IIF(?2 < ?4, 'next', NULL))`, id, n, tx.Now(), turn)
		}
		return err
	})
}
