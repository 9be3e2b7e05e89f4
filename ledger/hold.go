package ledger

import (
	"fmt"
	"time"
)

// Sidecar keeps, outside the file, which tokens may have been given out.
type Sidecar interface {
	// Reserve makes durable that tokens of the lineage up to ceiling may be given
	// out, and that the file holds floor.
	Reserve(lineage string, floor, ceiling int64) error
}

// reserveAhead is how far ahead tokens are reserved: a second of the clock that
// they follow, for one sync of the sidecar.
const reserveAhead = int64(time.Second / time.Microsecond)

// reservation is what has been reserved; it belongs to the committer.
type reservation struct {
	side    Sidecar // nil: none
	upTo    int64
	issued  int64 // the last token of the batch that is open
	durable int64 // the last one of a batch that was committed
}

// reach reserves tokens up to last. It tells only of tokens that the file holds
// for certain: with a floor that a power cut takes back, a good file would be
// taken for an older one.
func (r *reservation) reach(lineage string, last int64) error {
	if r.side == nil || last <= r.upTo {
		return nil
	}
	if err := r.side.Reserve(lineage, r.durable, last+reserveAhead); err != nil {
		return fmt.Errorf("reserve tokens: %w", err)
	}
	r.upTo = last + reserveAhead
	return nil
}

// Standing is what the file says of itself.
type Standing struct {
	Lineage   string
	LastToken int64
	Restored  time.Time // when it was put back from a copy and not released since; zero: it is no such file
}

// Stand reads it.
func Stand(q Querier) (s Standing, err error) {
	err = q.One(`SELECT lineage, last_token, restored_at FROM outbox_meta WHERE id = 1`).Scan(&s.Lineage, &s.LastToken, &s.Restored)
	if err != nil {
		return s, fmt.Errorf("read meta: %w", err)
	}
	return s, nil
}

// Hold says that the file is older than what was done with it, and lets no token
// up to ceiling be given out again.
func (tx *Tx) Hold(ceiling int64) error {
	_, err := tx.Exec(`UPDATE outbox_meta SET generation = generation + (restored_at IS NULL),
		restored_at = COALESCE(restored_at, ?), last_token = MAX(last_token, ?) WHERE id = 1`, tx.now, ceiling)
	if err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	return nil
}

// Unhold ends the hold.
func (tx *Tx) Unhold() error {
	if _, err := tx.Exec(`UPDATE outbox_meta SET restored_at = NULL WHERE id = 1`); err != nil {
		return fmt.Errorf("end the hold: %w", err)
	}
	return nil
}

// Held is ErrHeld while nothing may be sent, asked or reviewed.
func (tx *Tx) Held() error {
	var held bool
	if err := tx.One(`SELECT restored_at IS NOT NULL FROM outbox_meta WHERE id = 1`).Scan(&held); err != nil {
		return fmt.Errorf("read hold: %w", err)
	}
	if held {
		return ErrHeld
	}
	return nil
}
