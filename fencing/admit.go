package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Schema creates the table in which a downstream keeps the largest token that
// it has admitted, per key. It does nothing where the table exists.
const Schema = `CREATE TABLE IF NOT EXISTS outbox_fence (
	key   TEXT PRIMARY KEY NOT NULL CHECK (key <> ''),
	token INTEGER NOT NULL CHECK (token > 0)
) STRICT`

// ErrStale says that a larger token was admitted before: whoever holds this one
// has lost its claim, and nothing may be done for it.
var ErrStale = errors.New("fencing token is stale")

// ErrInvalid says that key or token can be none: the key is empty, or the token
// lies outside 1 to MaxToken.
var ErrInvalid = errors.New("fencing key or token is not valid")

// Querier is what Admit needs of a *sql.DB, *sql.Conn or *sql.Tx.
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Admit records token for key, or fails with ErrStale if a larger one is
// recorded. An equal token is admitted: it is the same claim once more. Call it
// in the transaction of the effect, before the effect; then a stale request
// cannot take effect between the check and the effect. It needs SQLite 3.37.
func Admit(ctx context.Context, q Querier, key string, token int64) error {
	if key == "" || token < 1 || token > MaxToken {
		return ErrInvalid
	}
	const upsert = `
INSERT INTO outbox_fence (key, token) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET token = excluded.token
 WHERE excluded.token >= outbox_fence.token
RETURNING token`
	var admitted int64
	err := q.QueryRowContext(ctx, upsert, key, token).Scan(&admitted)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrStale
	}
	if err != nil {
		return fmt.Errorf("admit fencing token: %w", err)
	}
	return nil
}
