// Package projection decides whether what became of an operation may enter a
// conversation now. That a job is done and that its result may be written to the
// foreground are two facts: the first is the entry's state, the second is decided
// here, in the transaction that writes or sets aside, by the turn that the
// operation named and the turn that is current then.
//
// It promises that nothing is written to another turn than the one that asked, nor
// to one whose foreground is closed; that every end of an operation that names a
// turn is written or set aside once, with a record of why; that a turn's number
// never comes twice; and that a session is seen only under its tenant and subject.
//
// Who may ask, and how a foreground is told, is left to api. It owns
// outbox_session, outbox_turn and outbox_history.
package projection

import (
	"errors"
	"fmt"
	"time"

	"github.com/outboxd/outboxd/ledger"
)

// The decisions about a result.
const (
	Written     = "written"     // to the turn that asked, which was current and open
	Quarantined = "quarantined" // set aside: it is an earlier task's result
	Fetched     = "fetched"     // by somebody, into another turn
)

// How a turn ended.
const (
	Next        = "next"        // the next one began
	Interrupted = "interrupted" // and the next one began in the same commit
	Stopped     = "stopped"     // without a next one
)

var (
	// ErrNotFound says that there is no such session of this tenant and subject, or no
	// such row of it that is set aside.
	ErrNotFound = errors.New("no such session, or nothing of it that is set aside")
	// ErrExists says that the name was given to a session before. None comes twice.
	ErrExists = errors.New("a session of this name exists, or existed")
)

// MovedError says that another turn is current, or that its foreground is closed.
type MovedError struct {
	Current int64
	Open    bool
}

// Error names the turn that is current.
func (e *MovedError) Error() string {
	state := "open"
	if !e.Open {
		state = "closed"
	}
	return fmt.Sprintf("the current turn is %d, and its foreground is %s", e.Current, state)
}

// Session is a conversation as it stands.
type Session struct {
	ID       int64
	Tenant   string
	Subject  string
	Name     string
	Turn     int64 // the current one
	Open     bool  // its foreground may be written
	OpenedAt time.Time
}

// Find reads a session of a tenant and subject, or ErrNotFound.
func Find(q ledger.Querier, tenant, subject, name string) (Session, error) {
	return find(q, tenant, subject, name)
}

// Open begins a session with its first turn.
func Open(tx *ledger.Tx, tenant, subject, name string) (Session, error) {
	id, inserted, err := tx.Insert(`INSERT INTO outbox_session (tenant_id, subject_id, session_id, turn, opened_at)
		VALUES (?, ?, ?, 1, ?) ON CONFLICT DO NOTHING`, tenant, subject, name, tx.Now())
	if err != nil {
		return Session{}, fmt.Errorf("open session: %w", err)
	}
	if !inserted {
		return Session{}, ErrExists
	}
	s := Session{ID: id, Tenant: tenant, Subject: subject, Name: name, Turn: 1, Open: true, OpenedAt: tx.Now()}
	return s, openTurn(tx, s)
}

// Advance ends the current turn and opens the next one, in one transaction. With
// expected another current turn is a *MovedError; 0: whichever it is.
func Advance(tx *ledger.Tx, s Session, expected int64, how string) (Session, error) {
	if expected != 0 && expected != s.Turn {
		return s, &MovedError{s.Turn, s.Open}
	}
	if err := closeTurn(tx, s, how); err != nil {
		return s, err
	}
	s.Turn, s.Open = s.Turn+1, true
	n, err := tx.Exec(`UPDATE outbox_session SET turn = ?1 WHERE id = ?2 AND turn = ?1 - 1`, s.Turn, s.ID)
	if err == nil && n == 0 {
		err = ledger.ErrIgnored
	}
	if err != nil {
		return s, fmt.Errorf("move session: %w", err)
	}
	return s, openTurn(tx, s)
}

// Stop closes the current turn's foreground and leaves the turn current. A turn that
// is closed stays so.
func Stop(tx *ledger.Tx, s Session, expected int64) (Session, error) {
	if expected != 0 && expected != s.Turn {
		return s, &MovedError{s.Turn, s.Open}
	}
	err := closeTurn(tx, s, Stopped)
	s.Open = false
	return s, err
}

func openTurn(tx *ledger.Tx, s Session) error {
	n, err := tx.Exec(`INSERT INTO outbox_turn (session, turn, opened_at, first_row)
		VALUES (?, ?, ?, (SELECT COALESCE(max(id), 0) FROM outbox_history))`, s.ID, s.Turn, tx.Now())
	if err == nil && n == 0 {
		err = ledger.ErrIgnored
	}
	if err != nil {
		return fmt.Errorf("open turn: %w", err)
	}
	return nil
}

func closeTurn(tx *ledger.Tx, s Session, how string) error {
	_, err := tx.Exec(`UPDATE outbox_turn SET closed_at = ?, last_row = (SELECT COALESCE(max(id), 0) FROM outbox_history), ended = ?
		WHERE session = ? AND turn = ? AND closed_at IS NULL`, tx.Now(), how, s.ID, s.Turn)
	if err != nil {
		return fmt.Errorf("close turn: %w", err)
	}
	return nil
}
